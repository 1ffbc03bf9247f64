package deliver

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// stuckReceivers knows the entities that do not accept their outcomes, because they
// fault, are quarantined or their type is suspended.
//
// An outcome takes the place of the message that it answers, so that two
// entities with full outboxes cannot wait for each other. No limit of an outbox
// applies to it, and it waits until its receiver works again. A run that faults
// at each outcome and is still called could therefore fill the outboxes of all
// shards that answer it, and their entities could send nothing any more.
//
// So executors ask before they execute a message that wants an outcome. If an
// outcome for the message's sender has just failed in this shard, the message
// waits in the sender's outbox, which has limits. If the outcomes of too many
// entities of a type wait in this shard, that applies to the whole type.
//
// No message waits forever because of this. Only a failed outcome makes others
// wait, outcomes themselves are never held back, and the next attempt to deliver
// that outcome decides again. So two entities cannot wait for each other, and an
// entity that works again frees its messages.
type stuckReceivers struct {
	channels atomic.Int64 // the sum of all, so that asking costs nothing while all entities work
	mu       sync.RWMutex
	shards   map[sharding.ShardID]*stuckShard
}

// stuckShard counts the channels of a shard whose first message is an outcome
// that failed, by destination and by its type.
type stuckShard struct {
	entities map[sharding.EntityID]int
	types    map[string]load
}

// isStuck reports whether messages of the sender that want an outcome must wait.
// It does not block for long, and callers may be on any goroutine.
func (h *stuckReceivers) isStuck(o *Options, shard sharding.ShardID, sender sharding.EntityID) bool {
	if h.channels.Load() == 0 {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.shards[shard]
	if s == nil {
		return false
	}
	waiting := s.types[sender.Type]
	return s.entities[sender] > 0 || waiting.messages >= o.TypeOutcomes || waiting.bytes >= o.TypeOutcomeBytes
}

// set notes whether the first message of a channel is an outcome that failed.
// size is what the message is charged for.
func (h *stuckReceivers) set(shard sharding.ShardID, f *flow, stuck bool, size int) {
	if stuck == (f.stuckBytes > 0) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.shards[shard]
	if s == nil {
		s = &stuckShard{map[sharding.EntityID]int{}, map[string]load{}}
		if h.shards == nil {
			h.shards = map[sharding.ShardID]*stuckShard{}
		}
		h.shards[shard] = s
	}
	to, more := f.channel.to, 1
	if !stuck {
		more, size = -1, -f.stuckBytes
	}
	f.stuckBytes += size
	h.channels.Add(int64(more))
	sum := s.types[to.Type]
	sum.messages, sum.bytes = sum.messages+more, sum.bytes+size
	s.types[to.Type] = sum
	s.entities[to] += more
	if sum.messages == 0 {
		delete(s.types, to.Type)
	}
	if s.entities[to] == 0 {
		delete(s.entities, to)
	}
}

// dropShard forgets a shard that the node no longer leads.
func (h *stuckReceivers) dropShard(shard sharding.ShardID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.shards[shard]; s != nil {
		for _, n := range s.entities {
			h.channels.Add(-int64(n))
		}
		delete(h.shards, shard)
	}
}

// noteOutcome notes the result of an attempt to deliver the first message of a
// channel.
func (c *core) noteOutcome(s *shard, f *flow, m *journal.Message, err error) {
	c.stuck.set(s.id, f, m.Answer && (errors.Is(err, request.ErrQuarantined) || errors.Is(err, request.ErrSuspended)), cost(m))
}
