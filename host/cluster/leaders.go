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

// Leaders say which node leads a shard. They are safe for concurrent use.
type Leaders struct {
	self   sharding.NodeID
	region *entity.ShardRouter
	// stopped says why the replica on this node has stopped, if it has: it hears
	// of no election.
	stopped func(sharding.ShardID) sharding.StopReason
	// heard says whether this node hears another one.
	heard  func(sharding.NodeID) bool
	places atomic.Pointer[places]
	told   atomic.Pointer[[]sharding.NodeID] // by shard; empty where not known
	stands atomic.Bool                       // this node's groups stand still

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at every change
}

// places is the metadata's placement, by shard.
type places struct {
	shards []place
	hosted []sharding.ShardID // with a replica here, that of metadata included
	placed bool               // every shard has replicas
}

// place is where the metadata has the replicas of a shard.
type place struct {
	replicas []meta.Replica
	nodes    []sharding.NodeID
	here     bool
	// lost are the nodes of voters whose disks are lost, if those are so many that
	// no leader can be elected.
	lost []sharding.NodeID
}

// NewLeaders makes leaders that know of nothing yet. stopped says why the replica on
// this node has stopped, if it has; heard, whether this node hears another one,
// whose changes Announce reports.
func NewLeaders(self sharding.NodeID, r *entity.ShardRouter, stopped func(sharding.ShardID) sharding.StopReason, heard func(sharding.NodeID) bool) *Leaders {
	l := &Leaders{self: self, region: r, stopped: stopped, heard: heard, changed: make(chan struct{})}
	l.places.Store(&places{})
	l.told.Store(&[]sharding.NodeID{})
	return l
}

// Learn takes the placement of a view.
func (l *Leaders) Learn(view *meta.View, shards uint32) {
	p := &places{shards: make([]place, shards+1), placed: true}
	for i := range p.shards {
		shard := sharding.ShardID(i)
		placement, ok := view.Placement(shard)
		if !ok {
			p.placed = false
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

// Tell takes the coordinator's word on who leads what, by shard.
func (l *Leaders) Tell(nodes []sharding.NodeID) {
	if slices.Equal(nodes, *l.told.Load()) {
		return
	}
	l.told.Store(&nodes)
	l.announce()
}

// Announce reports that this node hears others than before.
func (l *Leaders) Announce() { l.announce() }

func (l *Leaders) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Replicas are the replicas of a shard by the metadata. They are not changed.
func (l *Leaders) Replicas(shard sharding.ShardID) []meta.Replica { return l.at(shard).replicas }

// HasReplica reports whether this node is to have a replica of a shard.
func (l *Leaders) HasReplica(shard sharding.ShardID) bool { return l.at(shard).here }

// Placed are the shards with a replica here, that of the metadata included, and
// whether every shard of the cluster has replicas.
func (l *Leaders) Placed() (here []sharding.ShardID, all bool) {
	p := l.places.Load()
	return p.hosted, p.placed
}

func (l *Leaders) at(shard sharding.ShardID) place {
	if p := l.places.Load(); int(shard) < len(p.shards) {
		return p.shards[shard]
	}
	return place{}
}

// node names the node of a replica.
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
	at, lead := l.at(shard), l.region.Lead(shard)
	if lead.Self {
		return l.self, lead.Serving, lead.Serving
	}
	hears := at.here && l.stopped(shard) == sharding.NotStopped
	if lead.Leader != 0 && hears == at.here {
		if node, known = at.node(lead.Leader); known && node != l.self {
			return node, false, true
		}
	}
	if told, known := l.toldOf(shard); known && !hears {
		return told, false, true
	}
	return "", false, false
}

// toldOf is the node that leads a shard by the coordinator's last word, if this
// node hears it. The word of a coordinator that is gone may be old.
func (l *Leaders) toldOf(shard sharding.ShardID) (node sharding.NodeID, known bool) {
	told := *l.told.Load()
	if int(shard) >= len(told) || told[shard] == "" || told[shard] == l.self || !l.heard(told[shard]) {
		return "", false
	}
	return told[shard], true
}

// MayLead says whether another node may lead a shard. Where the replica here
// knows the leader it is that one alone, else whoever has a replica by the
// metadata: the coordinator's word is not asked for, which may be old, or of
// nobody while there is none.
func (l *Leaders) MayLead(node sharding.NodeID, shard sharding.ShardID) bool {
	at, lead := l.at(shard), l.region.Lead(shard)
	if lead.Self {
		return false
	}
	if lead.Leader != 0 && at.here && l.stopped(shard) == sharding.NotStopped {
		if leader, known := at.node(lead.Leader); known {
			return leader == node
		}
	}
	return slices.Contains(at.nodes, node)
}

// Candidates implements router.Leaders.
func (l *Leaders) Candidates(shard sharding.ShardID) []sharding.NodeID {
	at := l.at(shard)
	if !at.here || l.stopped(shard) == sharding.NotStopped {
		return at.nodes
	}
	return slices.DeleteFunc(slices.Clone(at.nodes), func(node sharding.NodeID) bool { return node == l.self })
}

// Stopped implements router.Leaders.
func (l *Leaders) Stopped(shard sharding.ShardID) sharding.StopReason { return l.stopped(shard) }

// Quorum implements router.Leaders. The raft group of a replica here knows. A
// node without a replica that works goes by the nodes with one. Those that the
// node hears must be enough for a majority, unless it hears the leader itself:
// that one hears others, and answers where it does not. A shard of which nothing
// is known here may have a quorum.
func (l *Leaders) Quorum(shard sharding.ShardID) bool {
	at, stopped := l.at(shard), l.stopped(shard)
	if at.here && stopped == sharding.NotStopped {
		lead := l.region.Lead(shard)
		return (lead.Quorum && (lead.Self || len(at.lost) == 0) || l.hearsLeader(at, lead)) && !l.stands.Load()
	}
	if _, known := l.toldOf(shard); known || len(at.nodes) == 0 {
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

// hearsLeader reports whether the replica here follows a leader on a node that
// this one hears.
func (l *Leaders) hearsLeader(at place, lead entity.Lead) bool {
	node, known := at.node(lead.Leader)
	return known && !lead.Self && node != l.self && l.heard(node)
}

// canVote reports whether the voter of a node may elect a leader: this node
// hears it. stopped is why the replica here has stopped, which then still votes
// if it has only met what it does not support.
func (l *Leaders) canVote(node sharding.NodeID, stopped sharding.StopReason) bool {
	if node == l.self {
		return stopped == sharding.StopUnsupported
	}
	return l.heard(node)
}

// Missing implements router.Leaders.
func (l *Leaders) Missing(shard sharding.ShardID) sharding.Missing {
	at := l.at(shard)
	out := sharding.Missing{Lost: at.lost}
	for _, node := range at.nodes {
		if node != l.self && !l.heard(node) {
			out.Unreachable = append(out.Unreachable, node)
		}
	}
	return out
}

// Stand says whether the groups of this node stand still: it knows nothing then
// of shards with a replica here, and nothing that it leads goes on.
func (l *Leaders) Stand(still bool) {
	if l.stands.Swap(still) != still {
		l.announce()
	}
}

// Changed implements router.Leaders: a channel that is closed at the next
// change.
func (l *Leaders) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Start begins to pass the region's changes on, and calls also with each. They
// are passed on until close: what is in flight when a node stops follows the
// leaderships that it gives away.
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

// run passes the region's changes on until ctx ends.
func (l *Leaders) run(ctx context.Context, also func()) {
	for {
		changed := l.region.LeadsChanged()
		l.announce()
		also()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
