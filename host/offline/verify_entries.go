package offline

import (
	"errors"
	"fmt"
	"io"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// maxNamedEntries bounds the entries that are named; further entries are
// only counted.
const maxNamedEntries = 100

// verifyEntries decodes the entries after the truncation points. If this
// release cannot decode an entry, the node would stop the replica of the
// entry's shard when it starts.
func verifyEntries(log recoveredLog, out io.Writer) (faults int) {
	if log.rec == nil {
		return 0
	}
	log.rec.FindUndecodable(readEntry, func(shard sharding.ShardID, index uint64, err error) {
		if faults++; faults <= maxNamedEntries {
			fmt.Fprintf(out, "FAULT %s: entry %d of shard %d: %v\n", datadir.WALDir, index, shard, err)
		}
	})
	if faults > maxNamedEntries {
		fmt.Fprintf(out, "FAULT %s: %d more entries\n", datadir.WALDir, faults-maxNamedEntries)
	}
	return faults
}

// readEntry returns why a replica would stop at an entry, as far as the entry
// alone shows.
func readEntry(shard sharding.ShardID, e journal.Committed) error {
	if len(e.Data) == 0 {
		return nil
	}
	entry, err := journal.DecodeEntry(e.Data)
	if err != nil {
		return err
	}
	if shard != sharding.MetaShard || entry.Kind != journal.EntryMeta || entry.Fence != e.Term {
		return nil
	}
	if err := meta.Check(entry.Body); errors.Is(err, meta.ErrUnsupported) {
		return err
	}
	return nil
}
