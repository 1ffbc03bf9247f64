package host

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/region"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// leaders says which node leads a shard: of a shard with a replica here as its
// raft group knows it, of others as the coordinator last told.
type leaders struct {
	self   sharding.NodeID
	region *region.Region
	places atomic.Pointer[places]
	told   atomic.Pointer[[]sharding.NodeID] // by shard; empty where not known

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at every change
}

// places is the metadata's placement, by shard.
type places struct {
	shards []place
	hosted []sharding.ShardID // with a replica here, that of metadata included
	placed bool               // every shard has replicas
}

type place struct {
	replicas []meta.Replica
	nodes    []sharding.NodeID
	here     bool
}

func newLeaders(self sharding.NodeID, r *region.Region) *leaders {
	l := &leaders{self: self, region: r, changed: make(chan struct{})}
	l.places.Store(&places{})
	l.told.Store(&[]sharding.NodeID{})
	return l
}

// learn takes the placement of a view.
func (l *leaders) learn(view *meta.View, shards uint32) {
	p := &places{shards: make([]place, shards+1), placed: true}
	for i := range p.shards {
		shard := sharding.ShardID(i)
		placement, ok := view.Placement(shard)
		if !ok {
			p.placed = false
			continue
		}
		at := &p.shards[i]
		at.replicas = placement.Replicas
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

// tell takes the coordinator's word on who leads what, by shard.
func (l *leaders) tell(nodes []sharding.NodeID) {
	if slices.Equal(nodes, *l.told.Load()) {
		return
	}
	l.told.Store(&nodes)
	l.announce()
}

func (l *leaders) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *leaders) at(shard sharding.ShardID) place {
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
func (l *leaders) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	at, lead := l.at(shard), l.region.Lead(shard)
	if lead.Self {
		return l.self, lead.Serving, lead.Serving
	}
	if lead.Leader != 0 {
		if node, known = at.node(lead.Leader); known && node != l.self {
			return node, false, true
		}
	}
	if told := *l.told.Load(); !at.here && int(shard) < len(told) && told[shard] != "" && told[shard] != l.self {
		return told[shard], false, true
	}
	return "", false, false
}

// Candidates implements router.Leaders.
func (l *leaders) Candidates(shard sharding.ShardID) []sharding.NodeID { return l.at(shard).nodes }

// Quorum implements router.Leaders.
func (l *leaders) Quorum(shard sharding.ShardID) bool {
	return !l.at(shard).here || l.region.Lead(shard).Quorum
}

// Changed implements router.Leaders: a channel that is closed at the next
// change.
func (l *leaders) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// start begins to pass the region's changes on, and calls also with each. They are passed on until close:
// what is in flight when a node stops follows the leaderships that it gives
// away.
func (l *leaders) start(also func()) (close func(context.Context) error) {
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
func (l *leaders) run(ctx context.Context, also func()) {
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
