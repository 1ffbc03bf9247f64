package entity

import "errors"

// An entity whose first events were cut, and of which its module reads no
// snapshot, cannot be built. Its head and the command ids of its window are
// there all the same, which is all that its deletion takes: for that alone it
// is hollow, resident without a guest, until no request waits.

// hollow makes an entity so when its load has ended with ErrCut and a deletion
// waits; false when there is none.
func (c *core) hollow(e *entity, ch *loadChunk) bool {
	if !errors.Is(ch.err, ErrCut) || !e.waiting.has(Delete) {
		return false
	}
	l := e.load()
	l.cancel()
	e.failed(ch.err)
	e.rest.load, e.rest.hollow, e.rest.whole, e.rest.below = nil, true, false, 0
	c.noteAll(e, ch.seen)
	c.recalled(e, max(l.before, ch.seen.before))
	e.phase, e.sequence, e.hash, e.lives = resident, ch.sequence, ch.hash, true
	e.outboxLoaded(int(ch.outbox), ch.asOf)
	delete(c.away, e)
	c.enqueue(e)
	return true
}

func (e *entity) hollow() bool { return e.rest != nil && e.rest.hollow }

// serveHollow decides the first request of a hollow entity's queue. It returns
// false when the queue has to wait for the shard.
func (c *core) serveHollow(e *entity) bool {
	t := c.opts.Types.Lookup(e.id.Type)
	switch {
	case t != e.typ: // the module that is active now may read a snapshot
	case t.Revision > e.shard.revision:
		c.bind(e, t.Revision)
		return false
	default:
		if r := e.waiting.pop(); r.Kind == Delete {
			c.remove(e, r)
		} else {
			c.settle(e.shard, r, Result{Err: ErrCut})
		}
		if !e.hollow() || e.waiting.len > 0 {
			return true
		}
	}
	c.away[e] = struct{}{}
	c.evict(e)
	c.revive(e)
	return true
}

func (q *queue) has(kind Kind) bool {
	for n, r := 0, q.last; n < q.len; n, r = n+1, r.next {
		if r.Kind == kind {
			return true
		}
	}
	return false
}
