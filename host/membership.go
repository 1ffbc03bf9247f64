package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/bootstrap"
	gossip "github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// membership is this node as a member of its cluster: how it comes in, what it
// knows of the others, and whether it may vote.
type membership struct {
	cfg       *config.Config
	logger    *slog.Logger
	lifecycle *lifecycle
	id        *datadir.Record
	address   func() string           // that clients reach the node at
	peersAt   func() string           // that other nodes reach it at, where they know of it
	apart     atomic.Bool             // clients' listeners are for clients alone, as far as is known
	parted    atomic.Bool             // by the metadata they were
	joined    sharding.ClusterVersion // that the cluster had when the node joined; 0 where it had joined before
	raft      *raftLog
	peers     *peer.Peers

	control     *cluster.Control
	founding    *cluster.Founding // nil for a node that belonged to a cluster at its start
	addressBook *cluster.AddressBook
	starts      *datadir.Starts
	gossiped    *gossip.Membership
	metadata    *cluster.Metadata
	member      *cluster.Member
	probation   *cluster.Probation
	seeds       *cluster.SeedWatch
	founded     atomic.Bool // the node founded its cluster in this start
	voted       atomic.Bool // the metadata has had all voters that the hosts allow
}

// describe is this node as a member.
func (m *membership) describe() meta.Member {
	out := meta.Member{
		Node: m.id.Node, Address: m.address(), PeerAddress: m.peersAt(), Disk: m.id.Disk, Incarnation: m.id.Now().Incarnation,
		Version: telemetry.Version(), Zone: m.cfg.Zone, Speaks: sharding.SupportedVersions,
	}
	if m.peers != nil {
		out.Incarnation = m.peers.Incarnation()
	}
	for _, role := range m.cfg.Roles {
		out.Roles = append(out.Roles, string(role))
	}
	return out
}

// enterCluster makes an empty directory's node a member of a cluster: of that
// of its seeds, or of one that it founds.
func (m *membership) enterCluster(ctx context.Context) error {
	id := m.id.Now()
	if id.Member() && id.Rejoin == "" {
		if id.Shards != m.cfg.Shards {
			m.logger.Warn("the number of shards is fixed when a cluster is created; the configured one is not used", "configured", m.cfg.Shards, "shards", id.Shards)
		}
		return m.peers.SetCluster(id.Cluster)
	}
	defer m.control.Found(nil) // asked until the directory says what became of it
	joined, err := m.join(ctx, id)
	if err == nil && joined == nil {
		err = m.startCluster()
	} else if err == nil {
		err = m.enter(joined)
	}
	if err != nil {
		return err
	}
	id = m.id.Now()
	m.control.Name(id.Node, id.Incarnation, id.Cluster)
	return nil
}

// join asks the seeds for admission; nil where the node is to found a cluster.
func (m *membership) join(ctx context.Context, id datadir.Identity) (*cluster.Joined, error) {
	if id.Rejoin != "" && len(m.cfg.Seeds)+len(id.Known) == 0 {
		return nil, fmt.Errorf("the node is to join cluster %s again: start it with the seeds of that cluster", id.Rejoin)
	}
	if len(m.cfg.Seeds) == 0 && id.Rejoin == "" {
		return nil, nil
	}
	entry := m.entry()
	entry.Raise = m.raise
	if id.Rejoin == "" {
		entry.Founding = m.founding
		m.control.Found(m.founding)
	}
	joined, err := entry.Enter(ctx)
	switch {
	case err != nil || joined == nil:
		return nil, err
	case id.Rejoin != "" && joined.Cluster != id.Rejoin:
		return nil, fmt.Errorf("the node is to join cluster %s again, its seeds are of %s", id.Rejoin, joined.Cluster)
	case joined.Format != datadir.ClusterFormat || !sharding.SupportedVersions.Contains(joined.Level):
		return nil, fmt.Errorf("the cluster's data has format %d and cluster version %d, this release reads format %d and %v", joined.Format, joined.Level, datadir.ClusterFormat, sharding.SupportedVersions)
	}
	return joined, nil
}

// startCluster makes the directory that of a founder.
func (m *membership) startCluster() error {
	name := datadir.RandomID()
	m.logger.Info("founding a cluster", "cluster_id", name, "shards", m.cfg.Shards)
	if err := m.peers.SetCluster(name); err != nil {
		return err
	}
	err := m.id.Save(func(id *datadir.Identity) bool {
		id.Cluster, id.Shards = name, m.cfg.Shards
		id.MetaReplica, id.MetaVoters = meta.BootstrapReplica, []sharding.ReplicaID{meta.BootstrapReplica}
		id.Vouch()
		return true
	})
	m.founded.Store(err == nil)
	return err
}

// enter makes the directory that of a member.
func (m *membership) enter(joined *cluster.Joined) error {
	if err := m.checkTLS(joined.Level); err != nil {
		return err
	}
	m.addressBook.Joined(joined)
	m.joined = joined.Level
	m.apart.Store(joined.Level >= sharding.VersionPeerAddress) // before this node says to anybody where it serves nodes
	m.logger.Info("admitted to the cluster", "cluster_id", joined.Cluster, "shards", joined.Shards)
	return m.id.Save(func(id *datadir.Identity) bool {
		id.Raise(joined.Level)
		id.Cluster, id.Shards, id.Rejoin = joined.Cluster, joined.Shards, ""
		id.Vouch()
		id.MetaReplica, id.MetaVoters, id.Several = joined.Replica, joined.First, true
		return true
	})
}

// openFounding makes the node's part in who founds its cluster, where it belongs
// to none.
func (m *membership) openFounding() {
	id := m.id.Now()
	if id.Member() || id.Rejoin != "" {
		return
	}
	wants := (m.cfg.Bootstrap || m.cfg.BootstrapExpect > 0 || len(m.cfg.Seeds) == 0) && !m.cfg.Proxy()
	m.founding = cluster.NewFounding(id.Node, id.Incarnation, id.Pledge, wants, m.cfg.BootstrapExpect, func(p bootstrap.Vote) error {
		return m.id.Save(func(id *datadir.Identity) bool {
			id.Pledge = p
			return true
		})
	})
}

// raise gives this start a higher incarnation, before it is known to anybody.
func (m *membership) raise(incarnation uint64) error {
	err := m.id.Save(func(id *datadir.Identity) bool {
		id.Incarnation = incarnation
		id.Vouch() // it votes, or has promised nothing yet
		return true
	})
	if err != nil {
		return err
	}
	m.peers.Raise(incarnation)
	id := m.id.Now()
	m.control.Name(id.Node, incarnation, cmp.Or(id.Cluster, id.Rejoin))
	return nil
}

// entry is this node's way into its cluster.
func (m *membership) entry() cluster.Entry {
	seeds := slices.Concat(m.cfg.Seeds, m.id.Now().Known)
	return cluster.Entry{Peers: m.peers, Self: m.describe(), PeersAt: m.gossipAt(), Seeds: seeds, Logger: m.logger}
}

// gossipAt is where other nodes reach this one, at the cluster's level.
func (m *membership) gossipAt() string {
	if m.apart.Load() {
		return m.peersAt()
	}
	return m.address()
}

// locateGossip is where a node takes gossip that was known at an address, its
// seeds' or one that it gave itself.
func (m *membership) locateGossip(address string) string {
	return m.peers.At(m.addressBook.GossipAt(address))
}

// parts says whether the clients' listener is for clients alone: at a level of
// the cluster, or where other nodes must speak TLS, which they do not there.
func (m *membership) parts() bool {
	return m.cfg.PeerTLS() == config.TLSRequire || max(m.joined, m.metadata.Level()) >= sharding.VersionPeerAddress
}

// checkTLS refuses a cluster of a level at which others look for this node
// where clients are, if they must speak TLS.
func (m *membership) checkTLS(level sharding.ClusterVersion) error {
	if m.cfg.PeerTLS() == config.TLSRequire && level < sharding.VersionPeerAddress {
		return fmt.Errorf("peer-tls-mode is require, which the cluster's level %d does not know: start the node with allow, and 'hostd cluster upgrade finalize' first", level)
	}
	return nil
}

// learnApart takes from the metadata whether the clients' listener is for clients
// alone, and reports the first time that it is. While the metadata has no
// cluster, what the data directory says holds.
func (m *membership) learnApart() (first bool) {
	parts := m.parts()
	if _, known := m.metadata.View().Cluster(); !known && !parts {
		return false
	}
	m.apart.Store(parts)
	return parts && m.parted.CompareAndSwap(false, true)
}

// referral is where other nodes are served while the clients' listener is for
// clients alone, and empty while it is not. A node without a cluster may have
// to do with nodes that know one listener only.
func (m *membership) referral() string {
	if m.apart.Load() {
		return m.peersAt()
	}
	return ""
}

// confirmed is the start of a node that the metadata knows, 0 for none.
func (m *membership) confirmed(node sharding.NodeID) uint64 {
	known, _ := m.metadata.View().Member(node)
	return known.Incarnation
}

// others are the members that are up and heard, without this node.
func (m *membership) others() []sharding.NodeID {
	var out []sharding.NodeID
	for _, o := range m.metadata.View().Members() {
		if o.Node != m.id.Node && o.Status != meta.StatusDown && m.peers.Heard(o.Node) {
			out = append(out, o.Node)
		}
	}
	return out
}

// policy is the cluster's by this node's own flags: that of a cluster which it
// founds, and of one that has none.
func (m *membership) policy() meta.Policy {
	return meta.Policy{Replication: m.cfg.Replication, MinMembers: m.cfg.MinHosts(), Rebalance: meta.DefaultPolicy.Rebalance, DeadAfter: m.cfg.DeadAfter}
}

// openProbation begins to ask others to vouch for this start, where that is
// needed.
func (m *membership) openProbation() error {
	var committed uint64
	st, err := m.raft.loop.Load().Status(sharding.MetaShard)
	if err == nil {
		committed = st.Commit
	} else if !errors.Is(err, raftgroup.ErrUnknownShard) {
		return err
	}
	m.probation.Start(committed)
	m.lifecycle.add("probation", m.probation.Close)
	return nil
}

func (m *membership) renewal() *cluster.Renewal {
	return &cluster.Renewal{Identity: m.id, Entry: m.entry, AddressBook: m.addressBook, End: m.lifecycle.end, Logger: m.logger}
}

// renewAtStart is given the error that a start failed with, and returns what it
// fails with in the end.
func (m *membership) renewAtStart(ctx context.Context, failed error) error {
	if m == nil || m.peers == nil {
		return failed
	}
	return m.renewal().AtStart(ctx, failed)
}

// watchReplaced ends the node when another process has taken its name.
func (m *membership) watchReplaced(ctx context.Context) {
	if err := cluster.AwaitReplaced(ctx, m.entry, m.addressBook.Addresses); errors.Is(err, cluster.ErrReplaced) {
		m.logger.Error("the cluster goes on with a later start of this node: this process stops", "error", err)
		m.lifecycle.end(err)
	}
}

// metadataVoted says whether the metadata shard has had, since the start, as many
// voters as the hosts that are heard allow. A new cluster that says before that
// it is ready can lose a node, and its metadata with it.
func (m *membership) metadataVoted() bool {
	if m.voted.Load() {
		return true
	}
	view, hosts := m.metadata.View(), 0
	for _, o := range view.Members() {
		if o.Status == meta.StatusUp && !o.HasRole(meta.RoleProxy) && (o.Node == m.id.Node || m.peers.Heard(o.Node)) {
			hosts++
		}
	}
	policy, _ := cluster.PolicyOf(view, m.policy())
	copies := min(hosts, policy.Replication)
	st, err := m.raft.loop.Load().Status(sharding.MetaShard)
	if err != nil || len(st.Voters) < copies-(copies+1)%2 {
		return false
	}
	m.voted.Store(true)
	return true
}

// founder says whether the metadata shard began on this node.
func (m *membership) founder() bool { return m.id.Now().MetaReplica == meta.BootstrapReplica }

// found writes the cluster's first metadata, if that is not there yet. Once
// another node votes on the metadata, it is.
func (m *membership) found(ctx context.Context) error {
	st, err := m.raft.loop.Load().Status(sharding.MetaShard)
	if err != nil || len(st.Voters) != 1 || st.Voters[0] != meta.BootstrapReplica {
		return err
	}
	if _, created := m.metadata.View().Cluster(); created {
		return nil
	}
	if err := m.metadata.CatchUp(ctx); err != nil {
		return err
	}
	if _, created := m.metadata.View().Cluster(); created {
		return nil
	}
	id := m.id.Now()
	c := meta.Cluster{ID: id.Cluster, Format: datadir.ClusterFormat, Shards: id.Shards, CreatedAt: time.Now().UnixNano()}
	if err := m.id.SaveLevel(sharding.MaxVersion); err != nil {
		return err
	}
	founder := m.describe()
	founder.Status = meta.StatusUp
	if _, err := m.metadata.Do(ctx, meta.CreateClusterUnder(m.policy(), c, founder)); err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	return nil
}

// leaveTimeout bounds how long a stop waits for others to hear of it.
const leaveTimeout = time.Second

// openGossip begins to gossip: it finds the addresses of nodes that moved
// while this one was away.
func (m *membership) openGossip(ctx context.Context, transport gossip.Transport) error {
	id := m.id.Now()
	key, err := m.cfg.GossipKey()
	if err != nil {
		return err
	}
	gossiped, err := gossip.Start(ctx, gossip.Options{
		Node: id.Node, Incarnation: id.Incarnation, Address: m.gossipAt(), Cluster: id.Cluster, Disk: id.Disk,
		Label: m.cfg.ClusterName, Seeds: m.cfg.Seeds, Key: key, Logger: m.logger,
		Latest: func(node sharding.NodeID) uint64 {
			return meta.LatestIncarnation(time.Now(), m.confirmed(node))
		},
		Transport: transport,
	})
	if err != nil {
		return err
	}
	m.gossiped = gossiped
	m.lifecycle.add("gossip", func(ctx context.Context) error {
		leaving, cancel := context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
		if err := gossiped.Leave(leaving); err != nil {
			// The others find out by themselves.
			m.logger.Debug("nobody was told that this node stops", "error", err)
		}
		return gossiped.Close(ctx)
	})
	return nil
}

// hear keeps the addresses up to what gossip brings.
func (m *membership) hear(ctx context.Context) {
	h := cluster.Hearsay{AddressBook: m.addressBook, View: m.metadata.View, Probe: m.peers.Probe, Cluster: m.peers.Cluster}
	h.Follow(ctx, m.gossiped)
}
