package entity

import (
	"slices"
	"time"
)

// An entity leaves memory when its handler or a caller asks for it, when it was
// idle for as long as its type says, and when the lane is short of memory. It
// leaves only between two requests and with nothing in flight; a request that
// comes meanwhile waits for its next life.

const (
	// touchEvery is how fine a lane knows when an entity was last asked for.
	touchEvery = 100 * time.Millisecond
	// sweepEntities bounds the entities that one sweep looks at.
	sweepEntities = 1024
	// mostIdle bounds the idle time that a tick can tell.
	mostIdle = 200 * 24 * time.Hour
	// makeRoomTries bounds the entities that leave to make room for one.
	makeRoomTries = 64
	// recycleAfter is how long an instance may be empty.
	recycleAfter = time.Second
)

// tick is a moment in steps of tickEvery, modulo 497 days.
type tick uint32

const tickEvery = 10 * time.Millisecond

// tickAt is the first tick that is not before a moment.
func tickAt(t time.Time) tick { return tick((t.UnixNano() + int64(tickEvery) - 1) / int64(tickEvery)) }

// since is the time from then to t, up to tickEvery too short.
func (then tick) since(t time.Time) time.Duration {
	return time.Duration(int32(tick(t.UnixNano()/int64(tickEvery))-then)) * tickEvery
}

// residents are a lane's entities in memory, by what makes them leave.
type residents struct {
	cache cache
	idle  map[string]*idle // by type
	empty bool             // an instance has become so since the last sweep
}

// idle is the entities of one type, the one that was asked for longest ago
// first.
type idle struct {
	first, last *entity
	next        *entity       // the first that was not looked at for folding
	after       time.Duration // 0: they stay
	log         foldLog
}

func (l *idle) push(e *entity) {
	if e.idler, e.idling = (links{prev: l.last}), true; l.last != nil {
		l.last.idler.next = e
	} else {
		l.first = e
	}
	l.last = e
	if l.next == nil {
		l.next = e
	}
}

// unshift puts an entity before all others; it is not looked at for folding.
func (l *idle) unshift(e *entity) {
	if e.idler, e.idling = (links{next: l.first}), true; l.first != nil {
		l.first.idler.prev = e
	} else {
		l.last = e
	}
	l.first = e
}

func (l *idle) take(e *entity) {
	if l.next == e {
		l.next = e.idler.next
	}
	if e.idler.prev != nil {
		e.idler.prev.idler.next = e.idler.next
	} else {
		l.first = e.idler.next
	}
	if e.idler.next != nil {
		e.idler.next.idler.prev = e.idler.prev
	} else {
		l.last = e.idler.prev
	}
	e.idler, e.idling = links{}, false
}

// resides takes note of an entity that has come into memory.
func (c *core) resides(e *entity) {
	e.asleep = false
	e.touched = tickAt(c.now)
	c.residents.cache.add(e)
	c.types.of(e.id.Type).resident.Add(1)
	l := c.residents.idle[e.id.Type]
	if l == nil {
		l = &idle{}
		c.residents.idle[e.id.Type] = l
	}
	l.after = c.idleAfter(e.typ)
	l.push(e)
	if l.after > 0 {
		c.look(c.now.UnixNano() + int64(l.after))
	}
	c.look(c.now.UnixNano() + int64(c.opts.FoldAfter))
}

// look has idle entities looked for by then.
func (c *core) look(at int64) {
	if c.sweepAt == 0 || at < c.sweepAt {
		c.sweepAt = at
	}
}

func (c *core) idleAfter(t *Type) time.Duration {
	after := t.PassivateAfter
	if c.opts.IdleAfter != nil {
		if d, set := c.opts.IdleAfter(t.Name); set {
			after = d
		}
	}
	switch {
	case after < 0, t.Remember:
		return 0
	case after == 0:
		return min(c.opts.PassivateAfter, mostIdle)
	}
	return min(after, mostIdle)
}

// idleTimesMoved looks at once for those that have been idle for too long now.
func (c *core) idleTimesMoved() {
	for name, l := range c.residents.idle {
		if t := c.opts.Types.Lookup(name); t != nil {
			l.after = c.idleAfter(t)
		}
	}
	c.look(c.now.UnixNano() + 1)
}

// leaves takes note of an entity that leaves memory, for whatever reason.
func (c *core) leaves(e *entity) {
	if !e.idling {
		return
	}
	c.residents.cache.remove(e)
	c.types.of(e.id.Type).resident.Add(-1)
	l := c.residents.idle[e.id.Type]
	if l.take(e); l.first == nil && l.log.count == 0 {
		delete(c.residents.idle, e.id.Type)
	}
}

// asked takes note of a request for a resident entity.
func (c *core) asked(e *entity) {
	if e.touched.since(c.now) < touchEvery {
		return
	}
	e.touched = tickAt(c.now)
	c.residents.cache.touch(e)
	l := c.residents.idle[e.id.Type]
	l.take(e)
	if l.push(e); l.next == e {
		c.look(c.now.UnixNano() + int64(c.opts.FoldAfter))
	}
}

// restful reports that an entity can leave now without anyone noticing.
func (e *entity) restful() bool {
	return e.phase == resident && e.waiting.len == 0 && !e.inst.busy && e.last <= e.shard.decided
}

// passivateIdle lets go of entities that were idle for long, and of instances
// that are mostly empty then.
func (c *core) passivateIdle() {
	now, looked, left := c.now.UnixNano(), 0, c.residents.empty
	if c.sweepAt == 0 || now < c.sweepAt {
		return
	}
	c.sweepAt, c.residents.empty = 0, false
	for _, l := range c.residents.idle {
		for l.after > 0 && looked < sweepEntities {
			c.unfoldOldest(l)
			e := l.first
			if e == nil {
				break
			}
			if wait := l.after - e.touched.since(c.now); wait > 0 {
				c.look(now + int64(wait))
				break
			}
			looked++
			if e.restful() {
				c.stats.Passivations++
				c.evict(e)
				c.revive(e)
				left = true
				continue
			}
			e.touched = tickAt(c.now)
			l.take(e)
			l.push(e)
		}
		looked += c.foldIdle(l, sweepEntities-looked)
	}
	if looked >= sweepEntities {
		c.look(now + 1)
	}
	if left {
		c.recycle()
	}
}

// recycle closes instances that are empty or, once they have grown, hold less
// than a quarter of what they could: their memory never shrinks. The entities
// in them load again when they are next asked for.
func (c *core) recycle() {
	for _, in := range slices.Clone(c.instances) {
		mostly := in.bytes >= c.opts.InstanceBytes/2 && in.resident*4 < in.capacity
		if !in.busy && in.guest != nil && (in.resident == 0 || mostly && c.settled(in)) {
			c.stats.Recycled++
			c.closeInstance(in)
		}
	}
}

// settled reports that no entity of the instance would be missed at once.
func (c *core) settled(in *instance) bool {
	for _, e := range in.entities {
		if e != nil && !e.restful() {
			return false
		}
	}
	return true
}

// shed lets the entities go that the lane can do without until the pool has
// room for another, and reports whether it has.
func (c *core) shed(p *pool) bool {
	for range makeRoomTries {
		e := c.victim()
		if e == nil {
			return false
		}
		if !e.restful() {
			c.residents.cache.touch(e)
			continue
		}
		c.stats.Shed++
		e.asleep = true
		c.evict(e)
		c.revive(e)
		if p.roomy() != nil {
			return true
		}
	}
	return false
}

// passivate carries out a request to let an entity leave, in the order of the
// entity's queue; one that is not in memory has left already.
func (c *core) passivate(e *entity, r *Request) {
	c.stats.Passivations++
	c.away[e] = struct{}{}
	recorded := c.putToRest(e, r)
	e.asleep = !e.typ.Singleton
	c.evict(e)
	if !recorded {
		c.settle(e.shard, r, Result{})
	}
	c.revive(e)
}
