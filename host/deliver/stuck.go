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
// entities with full outboxes cannot wait for each other. No limit of an
// outbox applies to it, and it waits until its receiver works again. A run
// that faults at each outcome and is still called could therefore fill the
// outboxes of all shards that answer it, and the entities of these shards
// could send nothing any more.
//
// So executors ask before they execute a message that wants an outcome. If an
// outcome for the message's sender has just failed in this shard, the message
// waits in the sender's outbox, which has limits. If the outcomes of too many
// entities of a type wait in this shard, messages of all entities of that
// type wait.
//
// No message waits forever because of this. Only a failed outcome makes
// messages wait, and the next attempt to deliver that outcome decides again.
// Outcomes themselves are never held back. So two entities cannot wait for
// each other, and an entity that works again frees its messages.
type stuckReceivers struct {
	channels atomic.Int64 // the sum over all shards, so that isStuck costs nothing while all entities work
	mu       sync.RWMutex
	shards   map[sharding.ShardID]*stuckShard
}

// stuckShard counts the channels of a shard whose first message is an outcome
// that failed, by destination and by the type of the destination.
type stuckShard struct {
	entities map[sharding.EntityID]load
	types    map[string]load // the shares of its entities
}

// Largest share that one entity has in the outcomes of its type. Its own
// messages wait anyway, and it must not make those of others wait.
const (
	shareOutcomes = 64
	shareBytes    = 256 << 10
)

// share returns what an entity's outcomes count for its type.
func share(l load) load { return load{min(l.messages, shareOutcomes), min(l.bytes, shareBytes)} }

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
	return s.entities[sender].messages > 0 || waiting.messages >= o.TypeOutcomes || waiting.bytes >= o.TypeOutcomeBytes
}

// set notes whether the first message of a channel is an outcome that failed.
// size is the memory that the message is charged for.
func (h *stuckReceivers) set(shard sharding.ShardID, f *flow, stuck bool, size int) {
	if stuck == (f.stuckBytes > 0) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.shards[shard]
	if s == nil {
		s = &stuckShard{map[sharding.EntityID]load{}, map[string]load{}}
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
	before := s.entities[to]
	after := load{before.messages + more, before.bytes + size}
	counted, counts := share(before), share(after)
	sum := s.types[to.Type]
	sum.messages, sum.bytes = sum.messages+counts.messages-counted.messages, sum.bytes+counts.bytes-counted.bytes
	s.types[to.Type], s.entities[to] = sum, after
	if sum.messages == 0 {
		delete(s.types, to.Type)
	}
	if after.messages == 0 {
		delete(s.entities, to)
	}
}

// dropShard forgets a shard that the node no longer leads.
func (h *stuckReceivers) dropShard(shard sharding.ShardID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.shards[shard]; s != nil {
		for _, n := range s.entities {
			h.channels.Add(-int64(n.messages))
		}
		delete(h.shards, shard)
	}
}

// noteOutcome notes the result of an attempt to deliver the first message of a
// channel.
func (c *core) noteOutcome(s *shard, f *flow, m *journal.Message, err error) {
	c.stuck.set(s.id, f, m.Answer && isStuckBy(err), cost(m))
}

// isStuckBy reports whether an outcome that fails with err waits until its
// receiver changes. A receiver that faults at outcomes only is never
// quarantined; its outcomes become dead letters until their number is limited.
func isStuckBy(err error) bool {
	return errors.Is(err, request.ErrQuarantined) || errors.Is(err, request.ErrSuspended) || errors.Is(err, request.ErrDeadLettersFull)
}
