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
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// dataFormat is the version of everything in a data directory.
const dataFormat = 1

// identity is what a data directory is; it lies in node.json. The cluster and
// what follows it are empty until the node has founded or joined one, and then
// fixed for ever.
type identity struct {
	Format uint32          `json:"format"`
	Node   sharding.NodeID `json:"nodeId"`
	// Disk is random and made with the directory: the same node with another
	// one has lost what its replicas promised.
	Disk string `json:"diskId,omitempty"`
	// Journal says that the directory has had a write-ahead log: without it the
	// node's replicas have lost what they promised.
	Journal bool `json:"journal,omitempty"`
	// Several says that the cluster has had other members: what one log lost,
	// others may hold.
	Several bool `json:"several,omitempty"`
	// Incarnation is higher at each start.
	Incarnation uint64 `json:"incarnation,omitempty"`
	Cluster     string `json:"clusterId,omitempty"`
	// Rejoin is the cluster that a node which gave its data up, or its replica
	// of the metadata, belongs to: it joins that one and founds none.
	Rejoin string `json:"rejoinClusterId,omitempty"`
	// Rebuilding: the metadata shard is being founded anew on this node.
	Rebuilding bool   `json:"rebuildingMetadata,omitempty"`
	Shards     uint32 `json:"shards,omitempty"`
	// MetaReplica is the node's replica of the metadata shard as it was
	// founded or joined, MetaVoters are that shard's first voters.
	MetaReplica sharding.ReplicaID   `json:"metaReplica,omitempty"`
	MetaVoters  []sharding.ReplicaID `json:"metaVoters,omitempty"`
}

// member says whether the directory belongs to a cluster.
func (id *identity) member() bool { return id.Cluster != "" }

// Files and folders of a data directory.
const (
	identityFile = "node.json"
	lockFile     = "lock"
	walDir       = "wal"
	storeDir     = "store"
	snapshotDir  = "snapshots"
	modulesDir   = "modules"
	cacheDir     = "cache"
)

// openIdentity reads the directory's identity, or gives an empty directory
// one, and counts the start.
func openIdentity(dir string, node sharding.NodeID, now time.Time) (identity, error) {
	if moving, err := interrupted(dir); err != nil || moving != "" {
		return identity{}, errors.Join(err, errRejoining)
	}
	id, err := readIdentity(filepath.Join(dir, identityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if left, err := hasJournal(dir); err != nil || left {
			return id, errors.Join(fmt.Errorf("%s is missing beside a journal: restore it from a backup, or start with an empty data directory", identityFile), err)
		}
		id = identity{Format: dataFormat, Node: node}
	case err != nil:
		return id, err
	case id.Rebuilding:
		return id, errRebuilding
	}
	if id.Disk == "" {
		id.Disk = randomID()
	}
	if id.member() && id.MetaReplica == 0 && id.Rejoin == "" { // written before there were clusters of several nodes
		id.MetaReplica, id.MetaVoters = meta.FounderReplica, []sharding.ReplicaID{meta.FounderReplica}
	}
	if err := id.checkJournal(dir); err != nil {
		return id, err
	}
	id.Incarnation = max(id.Incarnation+1, uint64(now.UnixMilli()))
	return id, id.write(dir)
}

// checkJournal refuses a directory whose log is gone: an empty one would let
// the node's replicas vote as if they had promised nothing.
func (id *identity) checkJournal(dir string) error {
	if !id.Journal {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(dir, walDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return nil
	}
	if id.Several {
		return errors.New("the write-ahead log is missing: bring it back, or let 'hostd recover --rejoin' make this a new disk of the node, which its peers fill")
	}
	return errors.New("the write-ahead log is missing: restore the directory from a backup, or start with an empty one")
}

func randomID() string { return strings.ToLower(rand.Text()) }

// write replaces the directory's node.json durably.
func (id *identity) write(dir string) error {
	out, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(disk.OS{}, filepath.Join(dir, identityFile), append(out, '\n'))
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
	if id.Node == "" || (id.Cluster == "") != (id.Shards == 0) {
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
