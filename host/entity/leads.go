package entity

import (
	"sync"

	"github.com/hostd/hostd/sharding"
)

// Lead is a shard's leadership as this node knows it.
type Lead struct {
	Term   sharding.Term
	Leader sharding.ReplicaID // 0 if no leader is known
	Self   bool
	// Serving reports whether this node leads and has applied the first entry of
	// its term.
	Serving bool
	// Quorum reports whether this node and the nodes that it can reach are a
	// quorum of the shard's voters. It is always true for a group of one, and
	// false if this node has no replica of the shard.
	Quorum bool
}

// leads holds the latest leadership of each shard, for listings and readiness.
type leads struct {
	mu     sync.Mutex
	shards []Lead          // leaderships by shard id; 0 is the metadata shard
	noop   []sharding.Term // highest term whose first entry is applied
	// changed is closed and replaced on every change.
	changed chan struct{}
}

func (l *leads) init(shards uint32) {
	l.shards = make([]Lead, shards+1)
	l.noop = make([]sharding.Term, shards+1)
	l.changed = make(chan struct{})
}

// set updates the leadership of a shard. The caller holds the lock.
func (l *leads) set(s sharding.ShardID, to Lead) {
	if l.shards[s] != to {
		l.shards[s] = to
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *leads) setLeader(s sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) && term >= l.shards[s].Term {
		l.set(s, Lead{Term: term, Leader: leader, Self: self, Serving: self && l.noop[s] == term, Quorum: l.shards[s].Quorum})
	}
}

func (l *leads) setQuorum(s sharding.ShardID, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) {
		to := l.shards[s]
		to.Quorum = ok
		l.set(s, to)
	}
}

func (l *leads) noteTermStart(s sharding.ShardID, term sharding.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(s) < len(l.shards) {
		l.noop[s] = max(l.noop[s], term)
		to := l.shards[s]
		to.Serving = to.Self && l.noop[s] == to.Term
		l.set(s, to)
	}
}

// Leads returns the leaderships of all shards by shard id. The first is the
// leadership of the metadata shard.
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

// LeadsChanged returns a channel that is closed on the next change of any
// leadership. Get the channel before you read the leaderships.
func (r *ShardRouter) LeadsChanged() <-chan struct{} {
	r.leads.mu.Lock()
	defer r.leads.mu.Unlock()
	return r.leads.changed
}

// HasLeaders reports whether each of the shards has a leader. A shard that
// this node leads counts only once this node serves it.
func (r *ShardRouter) HasLeaders(shards []sharding.ShardID) bool {
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
