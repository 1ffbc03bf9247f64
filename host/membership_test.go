package host

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// A member that starts and has no metadata yet relies on its data directory: it
// does not serve nodes on the clients' listener. The metadata overrides the
// data directory once it contains the cluster.
func TestDirectoryRecordsSeparatePeerListener(t *testing.T) {
	state := meta.New()
	m := &membership{cfg: &config.Config{}, metadata: cluster.NewMetadata(state, 0)}
	m.apart.Store(true)
	if m.learnApart() || !m.apart.Load() {
		t.Error("metadata without a cluster say that the listeners are one")
	}
	index := uint64(0)
	apply := func(command []byte) {
		t.Helper()
		index++
		if _, _, err := state.Apply(index, command); err != nil {
			t.Fatal(err)
		}
	}
	n1 := meta.Member{Node: "n1", Address: "a", Status: meta.StatusUp, Disk: "d", Incarnation: 1}
	apply(meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 2}, n1))
	if m.learnApart() || m.apart.Load() {
		t.Error("the listeners are apart at level 1")
	}
	apply(meta.RaiseClusterVersion(sharding.VersionPeerAddress, meta.Speaker{Node: "n1", Incarnation: 1, Speaks: sharding.SupportedVersions}))
	if !m.learnApart() || !m.apart.Load() {
		t.Error("the listeners are one at the level at which they are apart")
	}
	if m.learnApart() || !m.apart.Load() {
		t.Error("they have parted twice")
	}
}

// unheeded ignores published addresses.
type unheeded struct{}

func (unheeded) SetAddresses(map[sharding.NodeID]string) {}

// fixedAddresses are the addresses of a node with two listeners.
type fixedAddresses struct{}

func (fixedAddresses) ClientAddress() string { return "b:1" }
func (fixedAddresses) PeerAddress() string   { return "b:2" }

// A node that was just admitted advertises its peers' listener before it has
// any metadata, because other nodes already expect it there.
func TestAdmittedNodeAdvertisesPeerListener(t *testing.T) {
	dir := t.TempDir()
	record := datadir.NewRecord(dir, datadir.Identity{Format: sharding.Version1, Node: "n2"})
	m := &membership{
		logger: slog.New(slog.DiscardHandler), id: record,
		addressBook: cluster.NewAddressBook("n2", unheeded{}),
		metadata:    cluster.NewMetadata(meta.New(), 0),
		addresses:   fixedAddresses{},
		cfg:         &config.Config{},
	}
	for _, c := range []struct {
		level sharding.ClusterVersion
		at    string
	}{{sharding.Version1, "b:1"}, {sharding.VersionPeerAddress, "b:2"}} {
		if err := m.enter(&cluster.Joined{Cluster: "c", Shards: 2, Format: datadir.ClusterFormat, ClusterVersion: c.level, Replica: 2}); err != nil {
			t.Fatal(err)
		}
		if at := m.gossipAt(); at != c.at {
			t.Errorf("at level %d it is reached at %s", c.level, at)
		}
	}
}

// If nodes must use TLS, they are never served on the clients' listener.
func TestPeerTLSRequiresSeparateListener(t *testing.T) {
	m := &membership{cfg: &config.Config{PeerTLSMode: config.TLSRequire}, metadata: cluster.NewMetadata(meta.New(), 0)}
	if !m.learnApart() || !m.apart.Load() {
		t.Error("the listeners are one before there are metadata")
	}
}

// If peer-tls-mode is require, a node does not join a cluster in which it would
// have to serve nodes on the clients' listener.
func TestJoinWithPeerTLSNeedsPeerListener(t *testing.T) {
	record := datadir.NewRecord(t.TempDir(), datadir.Identity{Format: sharding.Version1, Node: "n2"})
	m := &membership{
		logger: slog.New(slog.DiscardHandler), id: record, cfg: &config.Config{PeerTLSMode: config.TLSRequire},
		addressBook: cluster.NewAddressBook("n2", unheeded{}),
		metadata:    cluster.NewMetadata(meta.New(), 0),
	}
	m.apart.Store(true)
	member := func() bool { id := record.Now(); return id.Member() }
	joined := &cluster.Joined{Cluster: "c", Shards: 2, Format: datadir.ClusterFormat, ClusterVersion: sharding.Version1, Replica: 2}
	if err := m.enter(joined); err == nil || !strings.Contains(err.Error(), "upgrade finalize") {
		t.Errorf("at level 1 it enters: %v", err)
	}
	if !m.apart.Load() || member() {
		t.Error("it serves nodes where clients are, or is a member")
	}
	joined.ClusterVersion = sharding.VersionPeerAddress
	if err := m.enter(joined); err != nil || !m.apart.Load() || !member() {
		t.Errorf("at level %d: %v", joined.ClusterVersion, err)
	}
}
