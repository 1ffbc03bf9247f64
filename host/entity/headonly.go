package entity

import (
	"errors"

	"github.com/hostd/hostd/host/request"
)

// An entity whose first events were cut, and of which its module reads no
// snapshot, cannot be built. Its head and the command ids of its window are
// there all the same, which is all that its deletion takes: for that alone it
// is resident without a guest, until no request waits.

// makeHeadOnly makes an entity so when its load has ended with request.ErrCut
// and a deletion waits; false when there is none.
func (c *core) makeHeadOnly(e *entity, ch *historyChunk) bool {
	if !errors.Is(ch.Err, request.ErrCut) || !e.waiting.Has(request.Delete) {
		return false
	}
	l := e.load()
	l.cancel()
	e.noteError(ch.Err)
	e.extra.load, e.extra.headOnly, e.extra.whole, e.extra.below = nil, true, false, 0
	c.takeCommands(e, l)
	c.noteChunk(e, l, ch)
	e.windowBuilt(l.before)
	c.weigh(e)
	e.phase, e.sequence, e.hash, e.exists = inMemory, ch.Sequence, ch.Hash, true
	e.outboxLoaded(int(ch.Outbox), ch.AsOf)
	delete(c.away, e)
	c.enqueue(e)
	return true
}

func (e *entity) headOnly() bool { return e.extra != nil && e.extra.headOnly }

// serveHeadOnly decides the first request of such an entity's queue. It returns
// false when the queue has to wait for the shard.
func (c *core) serveHeadOnly(e *entity) bool {
	t := c.typeOf(e.id)
	switch {
	case !t.Same(e.typ): // the module that is active now may read a snapshot
	case t.Revision > e.shard.revisions.Now:
		e.awaitBinding(t.Revision)
		return false
	case t.Muted:
		e.typ = t
		return !e.mute()
	default:
		if r := e.waiting.Pop(); r.Kind == request.Delete {
			c.decider.remove(e, r)
		} else {
			e.shard.settle(r, request.Result{Err: request.ErrCut})
		}
		if !e.headOnly() || e.waiting.Len() > 0 {
			return true
		}
	}
	c.away[e] = struct{}{}
	c.reload(e)
	return true
}
