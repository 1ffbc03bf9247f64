package entity

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
	// changed is closed, and made anew, when anything of it changes.
	changed chan struct{}
}

func (l *leads) init(shards uint32) {
	l.shards = make([]Lead, shards+1)
	l.noop = make([]sharding.Term, shards+1)
	l.changed = make(chan struct{})
}

// set is called with the lock held.
func (l *leads) set(s sharding.ShardID, to Lead) {
	if l.shards[s] != to {
		l.shards[s] = to
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *leads) elected(s sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) && term >= l.shards[s].Term {
		l.set(s, Lead{Term: term, Leader: leader, Self: self, Serving: self && l.noop[s] == term, Quorum: l.shards[s].Quorum})
	}
}

func (l *leads) quorum(s sharding.ShardID, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) {
		to := l.shards[s]
		to.Quorum = ok
		l.set(s, to)
	}
}

func (l *leads) started(s sharding.ShardID, term sharding.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) {
		l.noop[s] = max(l.noop[s], term)
		to := l.shards[s]
		to.Serving = to.Self && l.noop[s] == to.Term
		l.set(s, to)
	}
}

// Leads returns the leadership of every shard, by shard id, the metadata shard
// first.
func (r *ShardRouter) Leads() []Lead {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	return append([]Lead(nil), r.leads.shards...)
}

// Lead returns the leadership of a shard.
func (r *ShardRouter) Lead(shard sharding.ShardID) Lead {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	if int(shard) >= len(r.leads.shards) {
		return Lead{}
	}
	return r.leads.shards[shard]
}

// LeadsChanged returns a channel that is closed at the next change of any
// leadership. Take it before looking.
func (r *ShardRouter) LeadsChanged() <-chan struct{} {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	return r.leads.changed
}

// Led reports whether each of the shards has a leader and those of this node
// serve.
func (r *ShardRouter) Led(shards []sharding.ShardID) bool {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	for _, id := range shards {
		if int(id) >= len(r.leads.shards) {
			return false
		}
		if s := r.leads.shards[id]; s.Leader == 0 || s.Self && !s.Serving {
			return false
		}
	}
	return true
}
