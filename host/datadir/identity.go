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

// ClusterFormat is the format in a cluster's metadata. It never changes; newer
// formats follow the cluster version.
const ClusterFormat = 1

// Identity is the content of node.json, which identifies a data directory.
// Cluster and the fields that belong to it are empty until the node has
// bootstrapped or joined a cluster, and never change afterwards.
type Identity struct {
	// Format is the directory's cluster version. It is never below the
	// version of the cluster, because every member raises it before the
	// cluster's version is raised. A release that does not support it does
	// not open the directory.
	Format sharding.ClusterVersion `json:"format"`
	Node   sharding.NodeID         `json:"nodeId"`
	// Disk is a random id, made with the directory. If a node returns with a
	// different disk id, its replicas have lost the votes and entries that
	// they acknowledged.
	Disk string `json:"diskId,omitempty"`
	// Journal means that the directory has had a write-ahead log. If the log is
	// missing, the node's replicas have lost the votes and entries that they
	// acknowledged.
	Journal bool `json:"journal,omitempty"`
	// Several means that the cluster has had other members, which may have data
	// that this node's log lost.
	Several bool `json:"several,omitempty"`
	// Incarnation increases each time that the node starts.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// Attested is the last incarnation that was allowed to vote. If another
	// node knows of a later incarnation, this directory is an older copy of
	// itself. Requested is the incarnation that other nodes are asked to
	// attest, until they have done so.
	Attested  uint64 `json:"vouchedIncarnation,omitempty"`
	Requested uint64 `json:"askedIncarnation,omitempty"`
	// Renewed is when the node last set damaged data aside by itself, in
	// milliseconds since 1970.
	Renewed int64 `json:"renewedAt,omitempty"`
	// Vote is the node's bootstrap vote.
	Vote bootstrap.Vote `json:"pledge,omitzero"`
	// Known are addresses of other nodes, for a node that must join again.
	Known   []string `json:"knownAddresses,omitempty"`
	Cluster string   `json:"clusterId,omitempty"`
	// Rejoin is the cluster that the node must join again, because it discarded
	// its data or its replica of the metadata. Such a node does not bootstrap a
	// cluster.
	Rejoin string `json:"rejoinClusterId,omitempty"`
	// Sole are replicas that an operator made the only replicas of their
	// shards. The metadata must accept these replicas before they serve.
	Sole []SoleReplica `json:"soleReplicas,omitempty"`
	// Rebuilding means that a rebuild of the metadata shard on this node has
	// not finished.
	Rebuilding bool   `json:"rebuildingMetadata,omitempty"`
	Shards     uint32 `json:"shards,omitempty"`
	// MetaReplica is the node's replica of the metadata shard at the bootstrap
	// or join. MetaVoters are that shard's first voters.
	MetaReplica sharding.ReplicaID   `json:"metaReplica,omitempty"`
	MetaVoters  []sharding.ReplicaID `json:"metaVoters,omitempty"`
}

// SoleReplica is a replica that an offline recovery made the only one of its
// shard, and that the metadata has not yet accepted as such.
type SoleReplica struct {
	Shard   sharding.ShardID   `json:"shard"`
	Replica sharding.ReplicaID `json:"replica"`
}

// Member reports whether the directory belongs to a cluster.
func (id *Identity) Member() bool { return id.Cluster != "" }

// maxAhead bounds how far the first incarnation of a directory is ahead of
// the clock, in milliseconds. The offset is random, so that two processes
// that start under one name in the same millisecond get different
// incarnations, and the earlier one ends.
const maxAhead = 1 << 12

// Open reads the directory's identity, or creates one in an empty directory,
// and writes a new incarnation. The caller must hold the lock.
func Open(dir string, node sharding.NodeID, now time.Time) (Identity, error) {
	if moving, err := InterruptedMove(dir); err != nil || moving != "" {
		return Identity{}, errors.Join(err, ErrRejoining)
	}
	id, err := ReadIdentity(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if left, err := HasJournal(dir); err != nil || left {
			return id, errors.Join(fmt.Errorf("%s is missing although there is a journal: restore the file, or start with an empty data directory; for a single node, restore the directory from a backup", IdentityFile), err)
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
	if id.Member() && id.MetaReplica == 0 && id.Rejoin == "" { // written before clusters could have several nodes
		id.MetaReplica, id.MetaVoters = meta.BootstrapReplica, []sharding.ReplicaID{meta.BootstrapReplica}
	}
	if err := id.checkJournal(dir); err != nil {
		return id, err
	}
	if id.Member() && id.Attested == 0 { // written before incarnations were attested
		id.Attested = id.Incarnation
	}
	if id.Incarnation > meta.LatestIncarnation(now, 0) {
		// A clock was wrong. Other nodes reject such an incarnation unless
		// they have already accepted it; in that case their answers contain
		// it, and this node raises its incarnation.
		id.Incarnation = 0
	}
	first := id.Incarnation == 0
	if id.Incarnation = max(id.Incarnation+1, uint64(now.UnixMilli())); first {
		id.Incarnation += mathrand.Uint64N(maxAhead)
	}
	if id.Member() && !id.Several {
		id.Attest() // there is nobody to ask
	}
	if id.Requested <= id.Attested {
		id.Requested = max(id.Incarnation, id.Attested+1) + mathrand.Uint64N(staledisk.MaxLeap)
	}
	return id, id.Write(dir)
}

// Attest records that the current incarnation may vote.
func (id *Identity) Attest() {
	id.Attested = max(id.Attested, id.Requested, id.Incarnation)
}

// checkJournal rejects a directory whose log is missing. With an empty log, the
// node's replicas could vote again in terms in which they have already voted.
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
		return errors.New("the write-ahead log is missing: restore it, or run 'hostd recover --rejoin' to rebuild the node from its peers")
	}
	return errors.New("the write-ahead log is missing: restore the directory from a backup, or start with an empty one")
}

// RandomID returns a new id for a cluster or a disk.
func RandomID() string { return strings.ToLower(rand.Text()) }

// Write durably replaces the directory's node.json.
func (id *Identity) Write(dir string) error {
	out, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(disk.OS{}, filepath.Join(dir, IdentityFile), append(out, '\n'))
}

// Raise sets the cluster version that the directory may contain from now on,
// and reports whether it is new.
func (id *Identity) Raise(level sharding.ClusterVersion) bool {
	if level <= id.Format {
		return false
	}
	id.Format = level
	return true
}

// damagedAdvice is for an identity that does not show whether the node has
// peers.
const damagedAdvice = "start a node of a cluster with an empty data directory to rebuild it from its peers; restore a single node from a backup"

// ReadIdentity reads and checks the identity in dir. The error is
// fs.ErrNotExist if there is none. If the identity is damaged or has a cluster
// version that this release does not support, the error says what to do.
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

// HasJournal reports whether the directory contains a journal.
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
