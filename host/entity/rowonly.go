package entity

import (
	"errors"

	"github.com/hostd/hostd/host/request"
)

// If the first events of an entity were compacted away and its module reads
// none of its snapshots, its state cannot be built. The entity row and the
// command ids of its window still exist, and a deletion needs nothing else. So
// to be deleted, such an entity is in memory without a guest until its queue is
// empty.

// makeRowOnly puts an entity without a guest into memory if its load has ended
// with request.ErrCompacted and a deletion waits. Otherwise it returns false.
func (c *core) makeRowOnly(e *entity, ch *historyChunk) bool {
	if !errors.Is(ch.Err, request.ErrCompacted) || !e.waiting.Has(request.Delete) {
		return false
	}
	l := e.load()
	l.cancel()
	e.noteError(ch.Err)
	e.extra.load, e.extra.rowOnly, e.extra.whole, e.extra.below = nil, true, false, 0
	c.takeCommands(e, l)
	c.noteChunk(e, l, ch)
	e.windowBuilt(l.before, l.skip)
	c.weigh(e)
	e.phase, e.sequence, e.hash, e.exists = inMemory, ch.Sequence, ch.Hash, true
	e.setOutbox(int(ch.Outbox), ch.AsOf)
	delete(c.unloaded, e)
	c.enqueue(e)
	return true
}

func (e *entity) isRowOnly() bool { return e.extra != nil && e.extra.rowOnly }

// serveRowOnly decides the first request in the queue of an entity without a
// guest. It returns false if the queue must wait for the shard.
func (c *core) serveRowOnly(e *entity) bool {
	t := c.typeOf(e.id)
	switch {
	case !t.same(e.typ): // the new module may read a snapshot
	case t.Revision > e.shard.revisions.Now:
		e.awaitActivation(t.Revision)
		return false
	case t.WritesPaused:
		e.typ = t
		return !e.waitIfPaused()
	default:
		if r := e.waiting.Pop(); r.Kind == request.Delete {
			c.decider.remove(e, r)
		} else {
			e.shard.settle(r, request.Result{Err: request.ErrCompacted})
		}
		if !e.isRowOnly() || e.waiting.Len() > 0 {
			return true
		}
	}
	c.unloaded[e] = struct{}{}
	c.reload(e)
	return true
}
