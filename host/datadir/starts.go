package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/staledisk"
)

// startsFile is in the data directory of a node whose cluster has several
// nodes.
const startsFile = "starts.json"

// maxStarts bounds the nodes whose incarnations are recorded. Beyond it, the
// nodes are forgotten whose incarnations the metadata has recorded.
const maxStarts = 1024

var errTooManyStarts = fmt.Errorf("the limit of %d nodes with recorded starts is reached", maxStarts)

// Starts durably records the incarnations of other nodes that this node has
// attested. It is safe for concurrent use.
type Starts struct {
	dir   string
	mu    sync.Mutex
	known staledisk.Witness
}

// storedStarts is the file's content. Sum is the CRC-32C of the bytes of
// Starts.
type storedStarts struct {
	Starts json.RawMessage `json:"starts"`
	Sum    uint32          `json:"sum"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenStarts reads the incarnations recorded in dir. A missing file means
// none.
func OpenStarts(dir string) (*Starts, error) {
	s := &Starts{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, startsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return nil, err
	}
	var in storedStarts
	if err = json.Unmarshal(data, &in); err == nil && crc32.Checksum(in.Starts, castagnoli) != in.Sum {
		err = errors.New("its checksum does not match")
	}
	if err == nil {
		err = json.Unmarshal(in.Starts, &s.known)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): run 'hostd recover --rejoin' to rebuild the node from its peers", startsFile, err)
	}
	return s, nil
}

// RecordStart implements cluster.Starts.
func (s *Starts) RecordStart(start staledisk.Start, metadata func(sharding.NodeID) uint64) (latest uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest, record := s.known.Evaluate(start, metadata(start.Node))
	if !record {
		return latest, nil
	}
	next := s.known.Record(start)
	if len(next) > maxStarts {
		maps.DeleteFunc(next, func(node sharding.NodeID, recorded uint64) bool { return metadata(node) >= recorded })
	}
	if len(next) > maxStarts {
		return 0, errTooManyStarts
	}
	list, err := json.Marshal(next)
	if err != nil {
		return 0, err
	}
	out, err := json.Marshal(storedStarts{list, crc32.Checksum(list, castagnoli)})
	if err != nil {
		return 0, err
	}
	if err := disk.WriteFileAtomic(disk.OS{}, filepath.Join(s.dir, startsFile), append(out, '\n')); err != nil {
		return 0, fmt.Errorf("record a start of node %s: %w", start.Node, err)
	}
	s.known = next
	return latest, nil
}
