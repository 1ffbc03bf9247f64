package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// base is the state that all parts of an executor share: its options, the time
// of its turn, the entities that wait for a turn, and the number of unanswered
// requests. base does not know the parts.
type base struct {
	opts   Options
	runner guestRunner
	disk   disk      // nil if the disk counts as never full
	salt   uint64    // makes the hashes of entity ids unpredictable
	now    time.Time // time of this turn
	stats  Stats

	shards   map[sharding.ShardID]*shard
	ready    fairQueue[*entity]   // entities that wait for a turn, by caller
	dirty    []*shard             // shards with an open batch or an unrequested ReadIndex round
	unloaded map[*entity]struct{} // entities that are out of memory, or that wait for something, and may have requests
	owed     int                  // unanswered requests of all shards
	rounds   uint64               // ReadIndex rounds requested by this executor, over all shards
	intake   *deliveryIntake      // deliveries that are not admitted yet

	windows windows
}

// readOnly reports whether commands must be rejected, because the disk is full.
func (b *base) readOnly() bool { return b.disk != nil && b.disk.ReadOnly() }

// enqueue queues an entity for a turn with its guest.
func (b *base) enqueue(e *entity) {
	if !e.queued && !e.blocked && !e.awaitsActivation && !e.stalled {
		e.queued = true
		b.ready.Push(e.firstCaller(), e.id.Type, e)
	}
}

// firstCaller is the caller of the first request in the entity's queue.
func (e *entity) firstCaller() (who *principal.Principal) {
	if e.waiting.Len() > 0 {
		who = e.waiting.First().Principal
	}
	return who
}

// finish completes a request that is not counted by a shard.
func (b *base) finish(r *request.Request, res request.Result) {
	r.Exec.Leave()
	r.Result = res
	r.Done.Complete(r)
}

func (b *base) isPastDeadline(r *request.Request) bool {
	return !r.Deadline.IsZero() && r.Deadline.Before(b.now)
}

// wallNow returns the wall clock, limited to clockMost past the median of the
// nodes' clocks. Otherwise a leader with a wrong clock would set the log clock
// ahead permanently.
func (b *base) wallNow() int64 {
	now := b.now.UnixNano()
	if b.opts.Clocks != nil {
		if offset, known := b.opts.Clocks.Median(); known {
			return min(now, now+int64(offset+clockMost))
		}
	}
	return now
}

// typeOf returns the activation that serves an entity, or nil if there is none.
func (b *base) typeOf(id sharding.EntityID) *Type {
	return b.opts.Types.Lookup(id.Type).For(id)
}

// isOutdated reports whether the entity must not write records in its present
// state, because another module serves it now or writes of its type are paused.
func (b *base) isOutdated(e *entity) bool {
	t := b.typeOf(e.id)
	return !t.same(e.typ) || t.WritesPaused
}

// key is the hash by which an entity is found and counted.
func (b *base) key(id sharding.EntityID) uint32 { return resident.KeyOf(b.salt, id) }
