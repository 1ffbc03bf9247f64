package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// base is what all parts of an executor work with: its options, the time of its
// turn, who waits for a turn, and how many requests are not answered. It knows
// none of the parts.
type base struct {
	opts     Options
	runner   guestRunner
	readOnly func() bool
	salt     uint64    // of the keys of entities
	now      time.Time // of this turn
	stats    Stats

	shards map[sharding.ShardID]*shard
	ready  fairQueue[*entity]   // have a turn to take, by who asks them first
	dirty  []*shard             // have an open batch or unasked reads
	away   map[*entity]struct{} // may have requests waiting
	owed   int                  // requests of all shards not yet completed
	rounds uint64               // read rounds asked by this executor, over all shards
	intake *deliveryIntake      // of deliveries

	windows windows
}

// enqueue lets an entity take its turn with a guest.
func (b *base) enqueue(e *entity) {
	if !e.queued && !e.blocked && !e.awaitsBinding && !e.stalled {
		e.queued = true
		b.ready.Push(e.asker(), e.id.Type, e)
	}
}

// asker is who asks what is next in the entity's queue.
func (e *entity) asker() (who *principal.Principal) {
	if e.waiting.Len() > 0 {
		who = e.waiting.First().Principal
	}
	return who
}

// finish completes a request that no shard counts.
func (b *base) finish(r *request.Request, res request.Result) {
	r.Lane.Leave()
	r.Result = res
	r.Done.Complete(r)
}

func (b *base) pastDeadline(r *request.Request) bool {
	return !r.Deadline.IsZero() && r.Deadline.Before(b.now)
}

// wallNow is the wall clock, but not far past the one that most nodes have: one
// leader whose clock is wrong would set the log clock ahead for good.
func (b *base) wallNow() int64 {
	now := b.now.UnixNano()
	if b.opts.Median != nil {
		if offset, known := b.opts.Median(); known {
			return min(now, now+int64(offset+clockMost))
		}
	}
	return now
}

// typeOf is the binding that serves an entity; nil where there is none.
func (b *base) typeOf(id sharding.EntityID) *Type {
	return b.opts.Types.Lookup(id.Type).For(id)
}

// outdated reports that the entity is to leave nothing in the log as it is:
// another module serves it by now, or its own is to write none.
func (b *base) outdated(e *entity) bool {
	t := b.typeOf(e.id)
	return !t.Same(e.typ) || t.Muted
}

// key is what an entity is found and counted by.
func (b *base) key(id sharding.EntityID) uint32 { return resident.KeyOf(b.salt, id) }
