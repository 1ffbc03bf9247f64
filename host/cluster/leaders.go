package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// stopReasons knows which replicas of this node have stopped. A stopped replica
// does not observe elections.
type stopReasons interface {
	// StopReason returns why the replica of a shard has stopped, if it has.
	StopReason(sharding.ShardID) sharding.StopReason
}

// liveness knows which other nodes this node hears from.
type liveness interface {
	IsAlive(sharding.NodeID) bool
}

// Leaders knows which node leads each shard. It combines the raft groups of the
// replicas on this node with the coordinator's reports about the other shards.
// It is safe for concurrent use.
type Leaders struct {
	self        sharding.NodeID
	shardRouter *entity.ShardRouter
	replicas    stopReasons
	peers       liveness

	places   atomic.Pointer[places]
	reported atomic.Pointer[[]sharding.NodeID] // leaders reported by the coordinator, by shard; empty if unknown
	stalled  atomic.Bool                       // this node's groups make no progress

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
}

// places is the placement in the metadata, by shard.
type places struct {
	shards   []place
	hosted   []sharding.ShardID // shards with a replica on this node, including the metadata shard
	complete bool               // every shard has replicas
}

// place is the placement of one shard in the metadata.
type place struct {
	replicas []meta.Replica
	nodes    []sharding.NodeID
	here     bool
	// lost are the nodes of the voters whose disks are lost, if they are so
	// many that no leader can be elected.
	lost []sharding.NodeID
}

// NewLeaders returns a Leaders without placement. Call Announce when
// the results of peers change.
func NewLeaders(self sharding.NodeID, r *entity.ShardRouter, replicas stopReasons, peers liveness) *Leaders {
	l := &Leaders{self: self, shardRouter: r, replicas: replicas, peers: peers, changed: make(chan struct{})}
	l.places.Store(&places{})
	l.reported.Store(&[]sharding.NodeID{})
	return l
}

// Learn reads the placement from a view.
func (l *Leaders) Learn(view *meta.View, shards uint32) {
	p := &places{shards: make([]place, shards+1), complete: true}
	for i := range p.shards {
		shard := sharding.ShardID(i)
		placement, ok := view.Placement(shard)
		if !ok {
			p.complete = false
			continue
		}
		at := &p.shards[i]
		at.replicas, at.lost = placement.Replicas, placement.LostMajority()
		for _, r := range placement.Replicas {
			if !r.Lost {
				at.nodes = append(at.nodes, r.Node)
			}
		}
		if slices.Contains(at.nodes, l.self) {
			at.here = true
			p.hosted = append(p.hosted, shard)
		}
	}
	l.places.Store(p)
	l.announce()
}

// SetReported stores the shards' leaders as reported by the coordinator, indexed by
// shard.
func (l *Leaders) SetReported(nodes []sharding.NodeID) {
	if slices.Equal(nodes, *l.reported.Load()) {
		return
	}
	l.reported.Store(&nodes)
	l.announce()
}

// Announce notifies Changed that other nodes became alive or suspected.
func (l *Leaders) Announce() { l.announce() }

func (l *Leaders) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Replicas returns the replicas of a shard according to the metadata. The
// caller must not modify them.
func (l *Leaders) Replicas(shard sharding.ShardID) []meta.Replica { return l.at(shard).replicas }

// HasReplica reports whether the placement has a replica of a shard on this
// node.
func (l *Leaders) HasReplica(shard sharding.ShardID) bool { return l.at(shard).here }

// Placement returns the shards with a replica on this node, including the metadata
// shard, and whether every shard of the cluster has replicas.
func (l *Leaders) Placement() (here []sharding.ShardID, all bool) {
	p := l.places.Load()
	return p.hosted, p.complete
}

func (l *Leaders) at(shard sharding.ShardID) place {
	if p := l.places.Load(); int(shard) < len(p.shards) {
		return p.shards[shard]
	}
	return place{}
}

// node returns the node of a replica.
func (p place) node(replica sharding.ReplicaID) (sharding.NodeID, bool) {
	for _, r := range p.replicas {
		if r.ID == replica {
			return r.Node, true
		}
	}
	return "", false
}

// Leader implements router.Leaders.
func (l *Leaders) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	at, lead := l.at(shard), l.shardRouter.Lead(shard)
	if lead.Self {
		return l.self, lead.Serving, lead.Serving
	}
	hears := at.here && l.replicas.StopReason(shard) == sharding.NotStopped
	if lead.Leader != 0 && hears == at.here {
		if node, known = at.node(lead.Leader); known && node != l.self {
			return node, false, true
		}
	}
	if told, known := l.reportedLeader(shard); known && !hears {
		return told, false, true
	}
	return "", false, false
}

// reportedLeader returns the leader of a shard that the coordinator last reported, if
// this node hears from that leader. Otherwise the report may be outdated.
func (l *Leaders) reportedLeader(shard sharding.ShardID) (node sharding.NodeID, known bool) {
	told := *l.reported.Load()
	if int(shard) >= len(told) || told[shard] == "" || told[shard] == l.self || !l.peers.IsAlive(told[shard]) {
		return "", false
	}
	return told[shard], true
}

// MayLead reports whether another node may lead a shard. If this node's replica
// knows the leader, only that node may. Otherwise any node with a replica may.
// The coordinator's report is not used, because it may be outdated, and there
// is none while there is no coordinator.
func (l *Leaders) MayLead(node sharding.NodeID, shard sharding.ShardID) bool {
	at, lead := l.at(shard), l.shardRouter.Lead(shard)
	if lead.Self {
		return false
	}
	if lead.Leader != 0 && at.here && l.replicas.StopReason(shard) == sharding.NotStopped {
		if leader, known := at.node(lead.Leader); known {
			return leader == node
		}
	}
	return slices.Contains(at.nodes, node)
}

// Candidates implements router.Leaders.
func (l *Leaders) Candidates(shard sharding.ShardID) []sharding.NodeID {
	at := l.at(shard)
	if !at.here || l.replicas.StopReason(shard) == sharding.NotStopped {
		return at.nodes
	}
	return slices.DeleteFunc(slices.Clone(at.nodes), func(node sharding.NodeID) bool { return node == l.self })
}

// StopReason implements router.Leaders.
func (l *Leaders) StopReason(shard sharding.ShardID) sharding.StopReason {
	return l.replicas.StopReason(shard)
}

// Quorum implements router.Leaders. If this node has a working replica, its
// raft group decides. Otherwise this node must hear from the nodes of a
// majority of the voters. If this node hears from the leader itself, that
// suffices, because the leader answers for the quorum. For a shard about
// which this node knows nothing, Quorum returns true.
func (l *Leaders) Quorum(shard sharding.ShardID) bool {
	at, stopped := l.at(shard), l.replicas.StopReason(shard)
	if at.here && stopped == sharding.NotStopped {
		lead := l.shardRouter.Lead(shard)
		return (lead.Quorum && (lead.Self || len(at.lost) == 0) || l.hearsLeader(at, lead)) && !l.stalled.Load()
	}
	if _, known := l.reportedLeader(shard); known || len(at.nodes) == 0 {
		return true
	}
	if len(at.lost) > 0 {
		return false
	}
	voters, able := 0, 0
	for _, r := range at.replicas {
		if r.State != meta.ReplicaLearner && !r.Lost {
			voters++
			if l.canVote(r.Node, stopped) {
				able++
			}
		}
	}
	return able > voters/2
}

// hearsLeader reports whether the replica on this node follows a leader on a
// node that this node hears from.
func (l *Leaders) hearsLeader(at place, lead entity.Lead) bool {
	node, known := at.node(lead.Leader)
	return known && !lead.Self && node != l.self && l.peers.IsAlive(node)
}

// canVote reports whether the voter on a node may help to elect a leader,
// because this node hears from it. stopped is why this node's own replica has
// stopped; a replica that stopped only because it met an unsupported entry
// still votes.
func (l *Leaders) canVote(node sharding.NodeID, stopped sharding.StopReason) bool {
	if node == l.self {
		return stopped == sharding.StopUnsupported
	}
	return l.peers.IsAlive(node)
}

// Missing implements router.Leaders.
func (l *Leaders) Missing(shard sharding.ShardID) sharding.Missing {
	at := l.at(shard)
	out := sharding.Missing{Lost: at.lost}
	for _, node := range at.nodes {
		if node != l.self && !l.peers.IsAlive(node) {
			out.Unreachable = append(out.Unreachable, node)
		}
	}
	return out
}

// SetStalled sets whether the groups of this node make no progress. While
// they make none, this node knows nothing about the shards with a replica
// here, and the shards that it leads stall.
func (l *Leaders) SetStalled(still bool) {
	if l.stalled.Swap(still) != still {
		l.announce()
	}
}

// Changed implements router.Leaders. The channel is closed at the next change.
func (l *Leaders) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Start starts to forward the shard router's changes, and to call the
// function also after each change. The forwarding continues until close,
// because requests in flight follow the leaderships that a stopping node
// transfers.
func (l *Leaders) Start(also func()) (close func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx, also) })
	return func(context.Context) error {
		cancel()
		running.Wait()
		return nil
	}
}

// run forwards the shard router's changes until ctx ends.
func (l *Leaders) run(ctx context.Context, also func()) {
	for {
		changed := l.shardRouter.LeadsChanged()
		l.announce()
		also()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
