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

// addresses are the addresses of the node, as host:port.
type addresses interface {
	// ClientAddress returns the address where clients reach the node.
	ClientAddress() string
	// PeerAddress returns the address where other nodes reach the node, if they
	// know about the peers' listener.
	PeerAddress() string
}

// membership is this node as a member of its cluster: how the node
// bootstraps or joins the cluster, what it knows about the other nodes, and
// whether it may vote.
type membership struct {
	cfg       *config.Config
	logger    *slog.Logger
	lifecycle *lifecycle
	id        *datadir.Record
	addresses addresses
	apart     atomic.Bool             // the clients' listener serves clients only, as far as is known
	parted    atomic.Bool             // the metadata has confirmed apart
	joined    sharding.ClusterVersion // the cluster version when the node joined; 0 if it joined before this process started
	raft      *raftLog
	peers     *peer.Peers

	control      *cluster.Control
	bootstrap    *cluster.Bootstrap // nil if the node belonged to a cluster when it started
	addressBook  *cluster.AddressBook
	starts       *datadir.Starts
	gossiped     *gossip.Membership
	metadata     *cluster.Metadata
	member       *cluster.Member
	staleDisk    *cluster.StaleDiskCheck
	seeds        *cluster.SeedWatch
	bootstrapped atomic.Bool // the node bootstrapped its cluster since this process started
	voted        atomic.Bool // the metadata shard has had as many voters as the hosts allow
}

// Describe returns this node's entry in the list of members.
func (m *membership) Describe() meta.Member {
	out := meta.Member{
		Node: m.id.Node, Address: m.addresses.ClientAddress(), PeerAddress: m.addresses.PeerAddress(), Disk: m.id.Disk, Incarnation: m.id.Now().Incarnation,
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

// enterCluster makes a node with an empty directory a member of a cluster: it
// joins the cluster of its seeds or bootstraps one.
func (m *membership) enterCluster(ctx context.Context) error {
	id := m.id.Now()
	if id.Member() && id.Rejoin == "" {
		if id.Shards != m.cfg.Shards {
			m.logger.Warn("ignored the configured number of shards, because it is fixed when the cluster is created", "configured", m.cfg.Shards, "shards", id.Shards)
		}
		return m.peers.SetCluster(id.Cluster)
	}
	defer m.control.SetBootstrap(nil) // other nodes ask for the bootstrap state until the directory records the outcome
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

// join asks the seeds for admission. It returns nil if the node is to bootstrap
// a cluster.
func (m *membership) join(ctx context.Context, id datadir.Identity) (*cluster.Joined, error) {
	if id.Rejoin != "" && len(m.cfg.Seeds)+len(id.Known) == 0 {
		return nil, fmt.Errorf("the node must rejoin cluster %s: start it with the seeds of that cluster", id.Rejoin)
	}
	if len(m.cfg.Seeds) == 0 && id.Rejoin == "" {
		return nil, nil
	}
	entry := m.Entry()
	entry.Incarnations = m
	if id.Rejoin == "" {
		entry.Bootstrap = m.bootstrap
		m.control.SetBootstrap(m.bootstrap)
	}
	joined, err := entry.Enter(ctx)
	switch {
	case err != nil || joined == nil:
		return nil, err
	case id.Rejoin != "" && joined.Cluster != id.Rejoin:
		return nil, fmt.Errorf("the node must rejoin cluster %s, but its seeds belong to cluster %s", id.Rejoin, joined.Cluster)
	case joined.Format != datadir.ClusterFormat || !sharding.SupportedVersions.Contains(joined.ClusterVersion):
		return nil, fmt.Errorf("the cluster's data has format %d and cluster version %d, this release reads format %d and %v", joined.Format, joined.ClusterVersion, datadir.ClusterFormat, sharding.SupportedVersions)
	}
	return joined, nil
}

// startCluster records in the directory that this node bootstraps a cluster.
func (m *membership) startCluster() error {
	name := datadir.RandomID()
	m.logger.Info("bootstrapping a cluster", "cluster_id", name, "shards", m.cfg.Shards)
	if err := m.peers.SetCluster(name); err != nil {
		return err
	}
	err := m.id.Save(func(id *datadir.Identity) bool {
		id.Cluster, id.Shards = name, m.cfg.Shards
		id.MetaReplica, id.MetaVoters = meta.BootstrapReplica, []sharding.ReplicaID{meta.BootstrapReplica}
		id.Attest()
		return true
	})
	m.bootstrapped.Store(err == nil)
	return err
}

// enter records in the directory that this node is a member.
func (m *membership) enter(joined *cluster.Joined) error {
	if err := m.checkTLS(joined.ClusterVersion); err != nil {
		return err
	}
	m.addressBook.LearnJoin(joined)
	m.joined = joined.ClusterVersion
	m.apart.Store(joined.ClusterVersion >= sharding.VersionPeerAddress) // before any node learns the address of this node's peers' listener
	m.logger.Info("admitted to the cluster", "cluster_id", joined.Cluster, "shards", joined.Shards)
	return m.id.Save(func(id *datadir.Identity) bool {
		id.Raise(joined.ClusterVersion)
		id.Cluster, id.Shards, id.Rejoin = joined.Cluster, joined.Shards, ""
		id.Attest()
		id.MetaReplica, id.MetaVoters, id.Several = joined.Replica, joined.FirstVoters, true
		return true
	})
}

// openBootstrap creates the node's part in deciding which node bootstraps the
// cluster, if the node belongs to none.
func (m *membership) openBootstrap() {
	id := m.id.Now()
	if id.Member() || id.Rejoin != "" {
		return
	}
	wants := (m.cfg.Bootstrap || m.cfg.BootstrapExpect > 0 || len(m.cfg.Seeds) == 0) && !m.cfg.Proxy()
	m.bootstrap = cluster.NewBootstrap(id.Node, id.Incarnation, id.Vote, wants, m.cfg.BootstrapExpect, m)
}

// SaveVote implements the ballot of cluster.NewBootstrap.
func (m *membership) SaveVote(v bootstrap.Vote) error {
	return m.id.Save(func(id *datadir.Identity) bool {
		id.Vote = v
		return true
	})
}

// Rejoin asks the cluster once to admit this node again.
func (m *membership) Rejoin(ctx context.Context) (*cluster.Joined, error) {
	entry := m.Entry()
	entry.Incarnations = m
	joined, err := entry.RejoinOnce(ctx, m.addressBook.Addresses())
	if err == nil {
		// The metadata shard may be led by a node that joined while this node
		// was away. That node reaches this one, but this node needs the
		// other's address to answer.
		m.addressBook.LearnJoin(joined)
	}
	return joined, err
}

// HasLeft asks the other nodes whether this node was ordered to leave the
// cluster and is not a member any more.
func (m *membership) HasLeft(ctx context.Context, leaving bool) bool {
	return m.Entry().HasLeft(ctx, m.addressBook.Addresses(), leaving)
}

// Renewed records the node's new replica of the metadata shard.
func (m *membership) Renewed(j *cluster.Joined) error {
	return m.id.Save(func(id *datadir.Identity) bool {
		id.Raise(j.ClusterVersion)
		id.MetaReplica, id.MetaVoters = j.Replica, j.FirstVoters
		return true
	})
}

// Raise gives this process a higher incarnation. It may be called only
// before other nodes know the node's incarnation.
func (m *membership) Raise(incarnation uint64) error {
	err := m.id.Save(func(id *datadir.Identity) bool {
		id.Incarnation = incarnation
		id.Attest() // this incarnation may vote: the node was attested already, or has cast no vote yet
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

// Entry returns the addresses and the description with which this node joins
// its cluster.
func (m *membership) Entry() cluster.Entry {
	seeds := slices.Concat(m.cfg.Seeds, m.id.Now().Known)
	return cluster.Entry{Peers: m.peers, Self: m.Describe(), PeersAt: m.gossipAt(), Seeds: seeds, Logger: m.logger}
}

// gossipAt returns the address where other nodes reach this node, which
// depends on the cluster version.
func (m *membership) gossipAt() string {
	if m.apart.Load() {
		return m.addresses.PeerAddress()
	}
	return m.addresses.ClientAddress()
}

// locateGossip maps the gossip address of a seed or a member to the address
// where that node accepts gossip now.
func (m *membership) locateGossip(address string) string {
	return m.peers.At(m.addressBook.GossipAt(address))
}

// parts reports whether the clients' listener serves clients only. It does from
// cluster version VersionPeerAddress on, and always if nodes must use TLS,
// because the clients' listener does not offer TLS to nodes.
func (m *membership) parts() bool {
	return m.cfg.PeerTLS() == config.TLSRequire || max(m.joined, m.metadata.ClusterVersion()) >= sharding.VersionPeerAddress
}

// checkTLS rejects a cluster version at which other nodes would connect to the
// clients' listener, if peer-tls-mode is require.
func (m *membership) checkTLS(level sharding.ClusterVersion) error {
	if m.cfg.PeerTLS() == config.TLSRequire && level < sharding.VersionPeerAddress {
		return fmt.Errorf("peer-tls-mode: cluster version %d does not support require: start the node with allow, run 'hostd cluster upgrade finalize', then set require", level)
	}
	return nil
}

// learnApart updates the field apart from the metadata and reports whether that
// turned it on for the first time. While the metadata holds no cluster, the
// value taken from the data directory stays.
func (m *membership) learnApart() (first bool) {
	parts := m.parts()
	if _, known := m.metadata.View().Cluster(); !known && !parts {
		return false
	}
	m.apart.Store(parts)
	return parts && m.parted.CompareAndSwap(false, true)
}

// referral returns the address of the peers' listener if the clients' listener
// serves clients only, and "" otherwise. A node without a cluster serves both
// on the clients' listener, because a node of an old release may know only
// that listener.
func (m *membership) referral() string {
	if m.apart.Load() {
		return m.addresses.PeerAddress()
	}
	return ""
}

// confirmedIncarnation returns the newest incarnation of a node in the
// metadata, or 0 if the node is unknown. The incarnation of a former member
// is returned too, because the node may join again after a clock was
// corrected.
func (m *membership) confirmedIncarnation(node sharding.NodeID) uint64 {
	return m.metadata.View().LastStart(node)
}

// Others returns the members that are up and alive, without this node.
func (m *membership) Others() []sharding.NodeID {
	var out []sharding.NodeID
	for _, o := range m.metadata.View().Members() {
		if o.Node != m.id.Node && o.Status != meta.StatusDown && m.peers.IsAlive(o.Node) {
			out = append(out, o.Node)
		}
	}
	return out
}

// policy returns the placement policy in this node's flags. It applies to a
// cluster that the node bootstraps, and to a cluster whose metadata holds no
// policy.
func (m *membership) policy() meta.Policy {
	return meta.Policy{Replication: m.cfg.Replication, MinMembers: m.cfg.MinHosts(), Rebalance: meta.DefaultPolicy.Rebalance, DeadAfter: m.cfg.DeadAfter}
}

// openStaleDiskCheck starts the stale-disk check, which asks other nodes to
// attest this incarnation if it needs an attestation.
func (m *membership) openStaleDiskCheck() error {
	var committed uint64
	st, err := m.raft.loop.Load().Status(sharding.MetaShard)
	if err == nil {
		committed = st.Commit
	} else if !errors.Is(err, raftgroup.ErrUnknownShard) {
		return err
	}
	m.staleDisk.Start(committed)
	m.lifecycle.add("probation", m.staleDisk.Close)
	return nil
}

func (m *membership) renewal() *cluster.Renewal {
	return &cluster.Renewal{Identity: m.id, Entrance: m, AddressBook: m.addressBook, Lifecycle: m.lifecycle, Logger: m.logger}
}

// renewAtStart is called with the error of a node that failed to start. It
// tries to renew the node's membership and returns the error to report in
// the end.
func (m *membership) renewAtStart(ctx context.Context, failed error) error {
	if m == nil || m.peers == nil {
		return failed
	}
	return m.renewal().AtStart(ctx, failed)
}

// watchReplaced ends the node if another process has started under its name.
func (m *membership) watchReplaced(ctx context.Context) {
	if err := cluster.AwaitReplaced(ctx, m, m.addressBook); errors.Is(err, cluster.ErrReplaced) {
		m.logger.Error("a later start of this node has joined the cluster; stopping this process", "error", err)
		m.lifecycle.End(err)
	}
}

// metadataVoted reports whether, since this node started, the metadata shard
// has had as many voters as the live hosts allow. A new cluster must not
// report ready before that: it could lose its only voter, and with it all
// metadata.
func (m *membership) metadataVoted() bool {
	if m.voted.Load() {
		return true
	}
	view, hosts := m.metadata.View(), 0
	for _, o := range view.Members() {
		if o.Status == meta.StatusUp && !o.HasRole(meta.RoleProxy) && (o.Node == m.id.Node || m.peers.IsAlive(o.Node)) {
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

// hasBootstrapped reports whether this node bootstrapped the metadata shard.
func (m *membership) hasBootstrapped() bool { return m.id.Now().MetaReplica == meta.BootstrapReplica }

// writeFirstMetadata writes the cluster's first metadata unless it exists. If
// another node is a voter of the metadata shard, the metadata already exists.
func (m *membership) writeFirstMetadata(ctx context.Context) error {
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
	founder := m.Describe()
	founder.Status = meta.StatusUp
	if _, err := m.metadata.Do(ctx, meta.CreateClusterUnder(m.policy(), c, founder)); err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	return nil
}

// leaveTimeout bounds how long a stopping node waits until other nodes know
// that it leaves.
const leaveTimeout = time.Second

// openGossip starts to gossip, which finds the new addresses of nodes that
// moved while this node was away.
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
			return meta.LatestIncarnation(time.Now(), m.confirmedIncarnation(node))
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
			// The other nodes will notice on their own.
			m.logger.Debug("cannot notify other nodes that this node stops", "error", err)
		}
		return gossiped.Close(ctx)
	})
	return nil
}

// followGossip updates the address book from gossip until ctx ends.
func (m *membership) followGossip(ctx context.Context) {
	h := cluster.GossipVerifier{AddressBook: m.addressBook, Metadata: m.metadata, Peers: m.peers, Cluster: m.peers.Cluster()}
	h.Follow(ctx, m.gossiped)
}
