package datadir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/bootstrap"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/staledisk"
)

// ClusterFormat is what a cluster's metadata says of its format. It stands for
// ever; what is written since is told by the level.
const ClusterFormat = 1

// Identity is what a data directory is; it lies in node.json. The cluster and
// what follows it are empty until the node has founded or joined one, and then
// fixed for ever.
type Identity struct {
	// Format is the level of the directory. It is never below the cluster's:
	// every member raises it before the cluster's is raised. A release that does
	// not speak it does not open the directory.
	Format sharding.ClusterVersion `json:"format"`
	Node   sharding.NodeID         `json:"nodeId"`
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
	// Vouched is the last start that could vote: whoever knows of a later one
	// knows that this directory is an older copy of itself. Asked stands for the
	// start that others are asked to vouch for, until they have.
	Vouched uint64 `json:"vouchedIncarnation,omitempty"`
	Asked   uint64 `json:"askedIncarnation,omitempty"`
	// Renewed is when the node last put damaged data aside by itself, in
	// milliseconds since 1970.
	Renewed int64 `json:"renewedAt,omitempty"`
	// Vote is the word that the node has given as to who founds its cluster.
	Pledge bootstrap.Vote `json:"pledge,omitzero"`
	// Known are addresses of other nodes, for a node that is to join again.
	Known   []string `json:"knownAddresses,omitempty"`
	Cluster string   `json:"clusterId,omitempty"`
	// Rejoin is the cluster that a node which gave its data up, or its replica
	// of the metadata, belongs to: it joins that one and founds none.
	Rejoin string `json:"rejoinClusterId,omitempty"`
	// Sole are replicas that were made the only ones of their shards, and that the
	// metadata is to be asked about before they serve.
	Sole []SoleReplica `json:"soleReplicas,omitempty"`
	// Rebuilding: the metadata shard is being founded anew on this node.
	Rebuilding bool   `json:"rebuildingMetadata,omitempty"`
	Shards     uint32 `json:"shards,omitempty"`
	// MetaReplica is the node's replica of the metadata shard as it was
	// founded or joined, MetaVoters are that shard's first voters.
	MetaReplica sharding.ReplicaID   `json:"metaReplica,omitempty"`
	MetaVoters  []sharding.ReplicaID `json:"metaVoters,omitempty"`
}

// SoleReplica is a replica that a recovery of a stopped node made the only one of
// its shard, and that the metadata has not taken for that yet.
type SoleReplica struct {
	Shard   sharding.ShardID   `json:"shard"`
	Replica sharding.ReplicaID `json:"replica"`
}

// Member says whether the directory belongs to a cluster.
func (id *Identity) Member() bool { return id.Cluster != "" }

// maxAhead bounds, in milliseconds, how far the number of a directory's first
// start is ahead of the clock. It is drawn: of two processes that are started
// under one name in the same millisecond, one has the later start, and the other
// is the one that ends.
const maxAhead = 1 << 12

// Open reads the directory's identity, or gives an empty directory
// one, and counts the start.
func Open(dir string, node sharding.NodeID, now time.Time) (Identity, error) {
	if moving, err := Interrupted(dir); err != nil || moving != "" {
		return Identity{}, errors.Join(err, ErrRejoining)
	}
	id, err := ReadIdentity(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if left, err := HasJournal(dir); err != nil || left {
			return id, errors.Join(fmt.Errorf("%s is missing beside a journal: bring it back, or start with an empty data directory; for a lone node, restore the directory from a backup", IdentityFile), err)
		}
		id = Identity{Format: sharding.Version1, Node: node}
	case err != nil:
		return id, err
	case id.Rebuilding:
		return id, ErrRebuilding
	}
	if id.Disk == "" {
		id.Disk = RandomID()
	}
	if id.Member() && id.MetaReplica == 0 && id.Rejoin == "" { // written before there were clusters of several nodes
		id.MetaReplica, id.MetaVoters = meta.BootstrapReplica, []sharding.ReplicaID{meta.BootstrapReplica}
	}
	if err := id.checkJournal(dir); err != nil {
		return id, err
	}
	if id.Member() && id.Vouched == 0 { // written before starts were vouched for
		id.Vouched = id.Incarnation
	}
	if id.Incarnation > meta.LatestIncarnation(now, 0) {
		// A clock was wrong. Others refuse such a start, unless they have taken
		// it: then this node goes above it when they tell it so.
		id.Incarnation = 0
	}
	first := id.Incarnation == 0
	if id.Incarnation = max(id.Incarnation+1, uint64(now.UnixMilli())); first {
		id.Incarnation += mathrand.Uint64N(maxAhead)
	}
	if id.Member() && !id.Several {
		id.Vouch() // there is nobody to ask
	}
	if id.Asked <= id.Vouched {
		id.Asked = max(id.Incarnation, id.Vouched+1) + mathrand.Uint64N(staledisk.MaxLeap)
	}
	return id, id.Write(dir)
}

// Vouch notes that the present start may vote.
func (id *Identity) Vouch() {
	id.Vouched = max(id.Vouched, id.Asked, id.Incarnation)
}

// checkJournal refuses a directory whose log is gone: an empty one would let
// the node's replicas vote as if they had promised nothing.
func (id *Identity) checkJournal(dir string) error {
	if !id.Journal {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(dir, WALDir))
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

// RandomID makes the id of a cluster or of a disk.
func RandomID() string { return strings.ToLower(rand.Text()) }

// Write replaces the directory's node.json durably.
func (id *Identity) Write(dir string) error {
	out, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(disk.OS{}, filepath.Join(dir, IdentityFile), append(out, '\n'))
}

// Raise takes a level that the directory may hold from now on, and reports
// whether that is new.
func (id *Identity) Raise(level sharding.ClusterVersion) bool {
	if level <= id.Format {
		return false
	}
	id.Format = level
	return true
}

// damagedAdvice is for an identity that does not say whether there are peers.
const damagedAdvice = "start a node of several with an empty data directory, which its peers fill; restore a lone one from a backup"

// ReadIdentity reads and checks the identity that lies in dir. The error is
// fs.ErrNotExist where there is none, and says what to do where it is damaged or
// of a level that this release does not speak.
func ReadIdentity(dir string) (id Identity, err error) {
	data, err := os.ReadFile(filepath.Join(dir, IdentityFile))
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return id, fmt.Errorf("%s is damaged (%w): %s", IdentityFile, err, damagedAdvice)
	}
	if !sharding.SupportedVersions.Contains(id.Format) || id.Format == 0 {
		return id, fmt.Errorf("the data directory has cluster version %d, this release supports %v: start a different release", id.Format, sharding.SupportedVersions)
	}
	if id.Node == "" || (id.Cluster == "") != (id.Shards == 0) {
		return id, fmt.Errorf("%s is damaged: %s", IdentityFile, damagedAdvice)
	}
	return id, nil
}

// HasJournal reports whether the directory holds a journal.
func HasJournal(dir string) (bool, error) {
	for _, d := range []string{WALDir, StoreDir} {
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
