package host

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/placement"
)

// describe is this node as a member.
func (n *Node) describe() meta.Member {
	m := meta.Member{
		Node: n.id.Node, Address: n.advertised(), Disk: n.id.Disk, Incarnation: n.id.Incarnation,
		Version: telemetry.Version(), Zone: n.cfg.Zone,
	}
	for _, role := range n.cfg.Roles {
		m.Roles = append(m.Roles, string(role))
	}
	return m
}

// enterCluster makes an empty directory's node a member of a cluster: of that
// of its seeds, or of one that it founds.
func (n *Node) enterCluster(ctx context.Context) error {
	if n.id.member() && n.id.Rejoin == "" {
		if n.id.Shards != n.cfg.Shards {
			n.logger.Warn("the number of shards is fixed when a cluster is created; the configured one is not used", "configured", n.cfg.Shards, "shards", n.id.Shards)
		}
		return n.peers.SetCluster(n.id.Cluster)
	}
	if n.id.Rejoin != "" && len(n.cfg.Seeds) == 0 {
		return fmt.Errorf("the node is to join cluster %s again: start it with the seeds of that cluster", n.id.Rejoin)
	}
	var joined *cluster.Joined
	if len(n.cfg.Seeds) > 0 {
		var err error
		entry := n.entry()
		entry.Raise = n.raise
		joined, err = entry.Enter(ctx)
		if err != nil {
			return err
		}
		if joined != nil && n.id.Rejoin != "" && joined.Cluster != n.id.Rejoin {
			return fmt.Errorf("the node is to join cluster %s again, its seeds are of %s", n.id.Rejoin, joined.Cluster)
		}
	}
	if joined == nil {
		n.id.Cluster, n.id.Shards = randomID(), n.cfg.Shards
		n.id.MetaReplica, n.id.MetaVoters = meta.FounderReplica, []sharding.ReplicaID{meta.FounderReplica}
		n.logger.Info("founding a cluster", "cluster_id", n.id.Cluster, "shards", n.id.Shards)
		if err := n.peers.SetCluster(n.id.Cluster); err != nil {
			return err
		}
		return n.id.write(n.cfg.DataDir)
	}
	if joined.Format != dataFormat {
		return fmt.Errorf("the cluster's data has format %d, this release reads %d", joined.Format, dataFormat)
	}
	n.id.Cluster, n.id.Shards, n.id.Rejoin = joined.Cluster, joined.Shards, ""
	n.id.MetaReplica, n.id.MetaVoters, n.id.Several = joined.Replica, joined.First, true
	n.book.Joined(joined)
	n.logger.Info("admitted to the cluster", "cluster_id", n.id.Cluster, "shards", n.id.Shards)
	return n.id.write(n.cfg.DataDir)
}

// raise gives this start a higher incarnation, before it is known to anybody.
func (n *Node) raise(incarnation uint64) error {
	n.id.Incarnation = incarnation
	if err := n.id.write(n.cfg.DataDir); err != nil {
		return err
	}
	n.peers.Raise(incarnation)
	n.control.Name(n.id.Node, n.id.Incarnation, cmp.Or(n.id.Cluster, n.id.Rejoin))
	return nil
}

// maxSnapshots bounds the streams of snapshots that arrive at a time; those
// that the raft loop does not take yet wait.
const maxSnapshots = 64

// entry is this node's way into its cluster.
func (n *Node) entry() cluster.Entry {
	return cluster.Entry{Peers: n.peers, Self: n.describe(), Seeds: n.cfg.Seeds, Bootstrap: n.cfg.Bootstrap && n.id.Rejoin == "", Logger: n.logger}
}

// openPeers makes the links and the calls to other nodes.
func (n *Node) openPeers() error {
	n.control = &cluster.Control{}
	n.control.Name(n.id.Node, n.id.Incarnation, cmp.Or(n.id.Cluster, n.id.Rejoin))
	peers, err := peer.New(peer.Options{
		Self: n.id.Node, Incarnation: n.id.Incarnation, Network: n.network, Control: n.control, Logger: n.logger, MaxSnapshots: maxSnapshots,
		Receive: n.raft.receive, OnHeard: n.heard, OnSilent: n.silent,
	})
	if err != nil {
		return err
	}
	n.peers = peers
	n.book = cluster.NewBook(n.id.Node, peers.SetAddresses)
	n.closeLast("peers", peers.Close)
	return nil
}

// heard and silent tell the parts which other nodes can be counted on.
func (n *Node) heard(node sharding.NodeID) {
	n.raft.heard(node)
	if n.joined.Load() {
		n.forward.PeerHeard(node)
	}
}

func (n *Node) silent(node sharding.NodeID) {
	n.raft.silent(node)
	if n.joined.Load() {
		n.forward.PeerSilent(node)
	}
}

// openMembership brings the node's replica of the metadata shard to life and
// then keeps the node in step with the cluster. A founder that was stopped
// half-way goes on where it was.
func (n *Node) openMembership(ctx context.Context) error {
	loop := n.raft.loop.Load()
	if _, err := loop.Status(sharding.MetaShard); err != nil {
		err := loop.CreateGroups([]raftgroup.GroupConfig{{
			Shard: sharding.MetaShard, Replica: n.id.MetaReplica, Voters: n.id.MetaVoters,
		}})
		if err != nil {
			return fmt.Errorf("create the metadata group: %w", err)
		}
	}
	if n.founder() {
		if err := n.found(ctx); err != nil {
			return err
		}
	}
	if cluster, ok := n.metadata.View().Cluster(); ok && (cluster.ID != n.id.Cluster || cluster.Shards != n.id.Shards) {
		return fmt.Errorf("%s names cluster %s, the journal holds cluster %s: they do not belong together", identityFile, n.id.Cluster, cluster.ID)
	}
	if err := n.openGossip(ctx); err != nil {
		return err
	}
	member := cluster.Start(cluster.Options{
		Node: n.id.Node, Disk: n.id.Disk, Incarnation: n.id.Incarnation,
		Metadata: n.metadata, Raft: loop, Peers: n.peers, Describe: n.describe,
		Rejoin: func(ctx context.Context) (*cluster.Joined, error) {
			return n.entry().Again(ctx, n.book.Addresses())
		},
		Removed: func(ctx context.Context) bool { return n.entry().Removed(ctx, n.book.Addresses()) },
		Renewed: func(j *cluster.Joined) error {
			n.book.Joined(j)
			return n.remember(func(id *identity) bool {
				id.MetaReplica, id.MetaVoters = j.Replica, j.First
				return true
			})
		},
		Able:  func() bool { return !n.bindings.failing.Load() },
		Heard: func(node sharding.NodeID) bool { return node == n.id.Node || n.peers.Heard(node) },
		Applied: func(shard sharding.ShardID) uint64 {
			index, _ := n.machine.Applied(shard)
			return index
		},
		Size: func(shard sharding.ShardID) (entities, bytes uint64) {
			return n.machine.Entities(shard), n.machine.Bytes(shard)
		},
		Told: n.told,
		Coordinator: coordinator.Options{
			Replication: n.cfg.Replication, MinMembers: n.cfg.MinMembers, DeadAfter: n.cfg.DeadAfter,
			Strategy: placement.LeastLeaders{Threshold: n.cfg.RebalanceThreshold, MaxMoves: n.cfg.RebalanceMoves},
		},
		Logger: n.logger,
	})
	n.member = member
	n.closeLast("membership of the cluster", member.Close)
	n.control.Serve(member)
	n.joined.Store(true)
	return nil
}

// handOverTime bounds how long a node that stops waits for its leaderships to
// go to others.
const handOverTime = 3 * time.Second

// handOverRest is how long it waits for the next one to go.
const handOverRest = time.Second

// handOverLook is how often a node that stops looks whether anybody is left to
// take what it leads.
const handOverLook = 50 * time.Millisecond

// handOver gives the leaderships of this node away before it stops, as far as
// there is anybody to take them: callers then see a short pause and no error.
func (n *Node) handOver(ctx context.Context) error {
	if len(n.others()) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	n.member.Drain()
	every := time.NewTicker(handOverLook)
	defer every.Stop()
	moved, left := time.Now(), math.MaxInt
	for {
		changed := n.region.LeadsChanged()
		leading, heirs := 0, false
		for shard, l := range n.region.Leads() {
			if l.Self {
				leading++
				heirs = heirs || n.hasHeir(sharding.ShardID(shard))
			}
		}
		if leading == 0 {
			return nil
		}
		if leading < left {
			moved, left = time.Now(), leading
		}
		if !heirs || time.Since(moved) > handOverRest {
			n.logger.Info("stopping with leaderships that nobody is there to take")
			return nil
		}
		select {
		case <-changed:
		case <-every.C:
			n.member.Kick() // who else stops is in the answer
		case <-ctx.Done():
			n.logger.Info("stopping with leaderships that nobody took")
			return nil
		}
	}
}

// hasHeir says whether another node that votes on the shard is heard, and is not
// about to stop too as far as this one has been told.
func (n *Node) hasHeir(shard sharding.ShardID) bool {
	picture := n.member.Picture()
	return slices.ContainsFunc(n.leaders.at(shard).replicas, func(r meta.Replica) bool {
		return r.State == meta.ReplicaVoter && r.Node != n.id.Node && n.peers.Heard(r.Node) && !picture.Nodes[r.Node].Draining
	})
}

// remember changes the node's identity durably where change says that it did.
func (n *Node) remember(change func(*identity) bool) error {
	n.idMu.Lock()
	defer n.idMu.Unlock()
	if !change(&n.id) {
		return nil
	}
	return n.id.write(n.cfg.DataDir)
}

// metadataVoted says whether the metadata shard has had, since the start, as many
// voters as the hosts that are heard allow. A new cluster that says before that
// it is ready can lose a node, and its metadata with it.
func (n *Node) metadataVoted() bool {
	if n.voted.Load() {
		return true
	}
	view, hosts := n.metadata.View(), 0
	for _, m := range view.Members() {
		if m.Status == meta.StatusUp && !m.Has(meta.RoleProxy) && (m.Node == n.id.Node || n.peers.Heard(m.Node)) {
			hosts++
		}
	}
	policy, set := view.Policy()
	if !set {
		policy.Replication = n.cfg.Replication
	}
	copies := min(hosts, policy.Replication)
	st, err := n.raft.loop.Load().Status(sharding.MetaShard)
	if err != nil || len(st.Voters) < copies-(copies+1)%2 {
		return false
	}
	n.voted.Store(true)
	return true
}

// founder says whether the metadata shard began on this node.
func (n *Node) founder() bool { return n.id.MetaReplica == meta.FounderReplica }

// found writes the cluster's first metadata, if that is not there yet. Once
// another node votes on the metadata, it is.
func (n *Node) found(ctx context.Context) error {
	st, err := n.raft.loop.Load().Status(sharding.MetaShard)
	if err != nil || len(st.Voters) != 1 || st.Voters[0] != meta.FounderReplica {
		return err
	}
	if err := n.metadata.CatchUp(ctx); err != nil {
		return err
	}
	if _, created := n.metadata.View().Cluster(); created {
		return nil
	}
	c := meta.Cluster{ID: n.id.Cluster, Format: dataFormat, Shards: n.id.Shards, CreatedAt: time.Now().UnixNano()}
	founder := n.describe()
	founder.Status = meta.StatusUp
	if _, err := n.metadata.Do(ctx, meta.CreateCluster(c, founder)); err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	return nil
}

// told keeps what the coordinator says of who leads what.
func (n *Node) told(p *cluster.Picture) {
	nodes := make([]sharding.NodeID, n.id.Shards+1)
	for shard, s := range p.Shards {
		if int(shard) < len(nodes) {
			nodes[shard] = s.Leader
		}
	}
	n.leaders.tell(nodes)
}

// leaveTimeout bounds how long a stop waits for others to hear of it.
const leaveTimeout = time.Second

// openGossip begins to gossip: it finds the addresses of nodes that moved
// while this one was away.
func (n *Node) openGossip(ctx context.Context) error {
	key, err := n.cfg.GossipKey()
	if err != nil {
		return err
	}
	m, err := membership.Start(ctx, membership.Options{
		Node: n.id.Node, Incarnation: n.id.Incarnation, Address: n.advertised(), Cluster: n.id.Cluster, Disk: n.id.Disk,
		Label: n.cfg.ClusterName, Seeds: n.cfg.Seeds, Key: key, Logger: n.logger,
		Transport: network.NewGossip(n.network, n.gossip),
	})
	if err != nil {
		return err
	}
	n.gossiped = m
	n.closeLast("gossip", func(ctx context.Context) error {
		leaving, cancel := context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
		if err := m.Leave(leaving); err != nil {
			// The others find out by themselves.
			n.logger.Debug("nobody was told that this node stops", "error", err)
		}
		return m.Close(ctx)
	})
	return nil
}

// hear keeps the addresses up to what gossip brings.
func (n *Node) hear(ctx context.Context) {
	for {
		changed := n.gossiped.Changed()
		n.book.Hear(n.gossiped.Nodes())
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
