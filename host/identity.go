package host

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
)

// dataFormat is the version of everything in a data directory.
const dataFormat = 1

// identity is what a data directory is for ever; it lies in node.json.
type identity struct {
	Format  uint32          `json:"format"`
	Node    sharding.NodeID `json:"nodeId"`
	Cluster string          `json:"clusterId"`
	Shards  uint32          `json:"shards"`
}

// Files and folders of a data directory.
const (
	identityFile = "node.json"
	lockFile     = "lock"
	walDir       = "wal"
	storeDir     = "store"
	modulesDir   = "modules"
	cacheDir     = "cache"
)

// openIdentity reads the directory's identity, or founds a cluster of one in
// an empty directory.
func openIdentity(dir string, cfg *config.Config) (id identity, founded bool, err error) {
	name := filepath.Join(dir, identityFile)
	id, err = readIdentity(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, false, err
	}
	if left, err := hasJournal(dir); err != nil || left {
		return id, false, errors.Join(fmt.Errorf("%s is missing beside a journal: restore it from a backup, or start with an empty data directory", identityFile), err)
	}
	id = identity{Format: dataFormat, Node: cfg.NodeID, Cluster: strings.ToLower(rand.Text()), Shards: cfg.Shards}
	out, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return id, false, err
	}
	return id, true, disk.WriteFileAtomic(disk.OS{}, name, append(out, '\n'))
}

// readIdentity reads and checks a node.json.
func readIdentity(name string) (id identity, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return id, fmt.Errorf("%s is damaged (%w): restore it from a backup", identityFile, err)
	}
	if id.Format != dataFormat {
		return id, fmt.Errorf("the data directory has format %d, this release reads %d", id.Format, dataFormat)
	}
	if id.Shards == 0 || id.Node == "" || id.Cluster == "" {
		return id, fmt.Errorf("%s is damaged: restore it from a backup", identityFile)
	}
	return id, nil
}

// hasJournal reports whether the directory holds a journal.
func hasJournal(dir string) (bool, error) {
	for _, d := range []string{walDir, storeDir} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if len(entries) > 0 {
			return true, nil
		}
	}
	return false, nil
}
