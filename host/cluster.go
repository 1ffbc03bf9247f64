package host

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/placement"
)

// enterCluster makes the node a member of a cluster and sets the number of its
// shards.
func (n *Node) enterCluster(ctx context.Context) error {
	err := n.membership.enterCluster(ctx)
	n.shards = n.id.Now().Shards
	return err
}

// maxSnapshots is the highest number of incoming snapshot streams at a time.
// The raft loop may accept fewer; further streams wait.
const maxSnapshots = 64

// openPeers creates the client and server of calls between nodes.
func (n *Node) openPeers() error {
	id := n.id.Now()
	n.membership.control.Name(id.Node, id.Incarnation, cmp.Or(id.Cluster, id.Rejoin))
	n.membership.openBootstrap()
	peers, err := peer.New(peer.Options{
		Self: id.Node, Incarnation: id.Incarnation, Network: n.peerNetwork(), Control: n.membership.control, Logger: n.logger, MaxSnapshots: maxSnapshots,
		Around: []connect.Interceptor{carried{n}}, Caller: leaderproxy.HeaderOf,
		Raft: &n.replicas.raft, Observer: neighbors{n}, Wall: n.around.Wall, Metadata: &n.replicas,
		SuspectAfter: n.cfg.SuspectAfter, HeartbeatPeriod: n.cfg.SuspectAfter * 2 / 7, StuckAfter: max(3*time.Second, 4*n.cfg.SuspectAfter),
	})
	if err != nil {
		return err
	}
	n.peers, n.ports.links, n.membership.peers = peers, peers, peers
	n.membership.addressBook = cluster.NewAddressBook(n.id.Node, peers)
	n.lifecycle.add("peers", peers.Close)
	return nil
}

// neighbors are the other nodes as this node observes them. It reports
// changes to the raft loop, the forwarding client and the leader table.
type neighbors struct{ n *Node }

// PeerAlive reports a node as alive.
func (o neighbors) PeerAlive(node sharding.NodeID) {
	n := o.n
	n.replicas.raft.setAlive(node)
	if n.joined.Load() {
		n.routing.forward.PeerAlive(node)
		n.routing.leaders.Announce()
	}
}

// PeerSuspected reports a node as suspected.
func (o neighbors) PeerSuspected(node sharding.NodeID) {
	n := o.n
	n.replicas.raft.setSuspected(node)
	if n.joined.Load() {
		n.routing.forward.PeerSuspected(node)
		n.routing.leaders.Announce()
	}
}

// PeerFailed reports that the process of a node seems to have ended.
func (o neighbors) PeerFailed(node sharding.NodeID) { o.n.replicas.raft.setFailed(node) }

// openMembership starts the node's replica of the metadata shard and keeps the
// node in sync with the cluster from then on. If an earlier bootstrap was
// interrupted, it completes it.
func (n *Node) openMembership(ctx context.Context) error {
	id := n.id.Now()
	loop := n.replicas.raft.loop.Load()
	if _, err := loop.Status(sharding.MetaShard); err != nil {
		err := loop.CreateGroups([]raftgroup.GroupConfig{{
			Shard: sharding.MetaShard, Replica: id.MetaReplica, Voters: id.MetaVoters,
		}})
		if err != nil {
			return fmt.Errorf("create the metadata group: %w", err)
		}
	}
	if err := n.membership.openStaleDiskCheck(); err != nil {
		return err
	}
	n.membership.seeds = &cluster.SeedWatch{Entrance: n.membership, Cluster: id.Cluster, Logger: n.logger}
	if n.membership.hasBootstrapped() {
		if err := n.membership.writeFirstMetadata(ctx); err != nil {
			return err
		}
	}
	if cluster, ok := n.membership.metadata.View().Cluster(); ok && (cluster.ID != id.Cluster || cluster.Shards != id.Shards) {
		return fmt.Errorf("%s names cluster %s, but the journal belongs to cluster %s: the files are from different nodes", datadir.IdentityFile, id.Cluster, cluster.ID)
	}
	if err := n.id.SaveLevel(n.membership.metadata.ClusterVersion()); err != nil {
		return err
	}
	if n.membership.learnApart() {
		n.ports.part()
	}
	if err := n.membership.openGossip(ctx, network.NewGossip(n.peerNetwork(), n.membership.locateGossip, n.ports.peers.gossip, n.ports.clients.gossip)); err != nil {
		return err
	}
	member := cluster.Start(cluster.Options{
		Node: n.id.Node, Disk: n.id.Disk,
		Metadata: n.membership.metadata, Raft: loop, Peers: n.peers, Self: n.membership,
		Admitted: n.membership.staleDisk.Admission(), Condition: inCluster{n}, Machine: n.replicas.machine, Observer: inCluster{n},
		Coordinator: coordinator.Options{
			BackOff: n.cfg.LeadershipCooldown, MaxBackOff: 60 * n.cfg.LeadershipCooldown,
			Replication: n.cfg.Replication, MinMembers: n.cfg.MinHosts(), DeadAfter: n.cfg.DeadAfter,
			Strategy: placement.LeastLeaders{Threshold: n.cfg.RebalanceThreshold, MaxMoves: n.cfg.RebalanceMoves},
		},
		Logger: n.logger,
	})
	n.membership.member = member
	n.lifecycle.add("cluster membership", member.Close)
	n.membership.control.Serve(member)
	n.openServices(id.Cluster)
	n.openRoles()
	n.joined.Store(true)
	return nil
}

// openServices gives the services of the API their parts.
func (n *Node) openServices(name string) {
	upcasts := replay.NewUpcasts(replay.UpcastOptions{Types: n.guests.modules.Types, Modules: n.guests.modules.Distribution, Metadata: n.membership.metadata, Executors: n.shardRouter})
	n.lifecycle.add("event upcasting", upcasts.Close)
	n.guests.replays = replay.New(replay.Options{Machine: n.replicas.machine, Executors: n.shardRouter, Types: n.guests.modules.Types, Modules: n.guests.modules.Distribution, Shards: &n.api.entity, Rate: n.cfg.VerifyRate})
	n.api.open(clusterapi.Parts{
		Self: n.id.Node, ClusterID: name, ShardCount: n.shards, Policy: n.membership.policy(), Node: n.membership, Identity: n.id, Now: n.around.Wall, CaughtUp: &n.caughtUp, Counters: counters{n},
		Metadata: n.membership.metadata, Member: n.membership.member, Control: n.membership.control, Peers: n.peers, Leaders: n.routing.leaders, Raft: n.replicas.raft.loop.Load(),
		Machine: n.replicas.machine, Consistency: n.replicas.consistency, Logger: n.logger,
	}, entityapi.Parts{
		Self: n.id.Node, ClusterID: name, ShardCount: n.shards, Metadata: n.membership.metadata, Leaders: n.routing.leaders, Machine: n.replicas.machine,
		ShardRouter: n.shardRouter, Router: n.routing.router, Types: n.guests.modules.Types, Keys: n.guests.modules.Keys, Replays: n.guests.replays, Upcasts: upcasts, Commits: n.backup.part,
	}, moduleapi.Parts{Modules: n.guests.modules, Replays: n.guests.replays}, n.backup.service)
}

// ErrOlderCopy and ErrDamagedData stop a node whose data directory needs a
// call of Rejoin before the node starts again.
var (
	ErrOlderCopy   = cluster.ErrOlderCopy
	ErrDamagedData = cluster.ErrDamagedData
)

func (n *Node) soleShards() cluster.SoleShards {
	return cluster.SoleShards{
		Identity: n.id, Metadata: n.membership.metadata, Admitted: n.membership.staleDisk.Admission(), Applier: n.replicas.applier, Raft: n.replicas.raft.loop.Load(),
		Lifecycle: n.lifecycle, Logger: n.logger,
	}
}
