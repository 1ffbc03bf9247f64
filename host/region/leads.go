package region

import (
	"sync"

	"github.com/hostd/hostd/sharding"
)

// Lead is what a node knows of a shard's leadership.
type Lead struct {
	Term   sharding.Term
	Leader sharding.ReplicaID // 0 while none is known
	Self   bool
	// Serving: this node leads, and the first entry of its term is applied.
	Serving bool
	// Quorum: the nodes that this one hears, itself included, are a quorum of
	// the shard's voters. Always so for a group of one; false while this node
	// has no replica of the shard.
	Quorum bool
}

// leads keeps the latest leadership of each shard for listings and readiness.
type leads struct {
	mu     sync.Mutex
	shards []Lead          // by shard id; 0 is the metadata shard
	noop   []sharding.Term // highest term whose first entry is applied
}

func (l *leads) init(shards uint32) {
	l.shards = make([]Lead, shards+1)
	l.noop = make([]sharding.Term, shards+1)
}

func (l *leads) elected(s sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) && term >= l.shards[s].Term {
		l.shards[s] = Lead{Term: term, Leader: leader, Self: self, Serving: self && l.noop[s] == term, Quorum: l.shards[s].Quorum}
	}
}

func (l *leads) quorum(s sharding.ShardID, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) {
		l.shards[s].Quorum = ok
	}
}

func (l *leads) started(s sharding.ShardID, term sharding.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) {
		l.noop[s] = max(l.noop[s], term)
		l.shards[s].Serving = l.shards[s].Self && l.noop[s] == l.shards[s].Term
	}
}

// Leads returns the leadership of every shard, by shard id, the metadata shard
// first.
func (r *Region) Leads() []Lead {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	return append([]Lead(nil), r.leads.shards...)
}

// Led reports whether every shard has a leader and those of this node serve.
func (r *Region) Led() bool {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	for _, s := range r.leads.shards {
		if s.Leader == 0 || s.Self && !s.Serving {
			return false
		}
	}
	return true
}
