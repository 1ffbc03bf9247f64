package entity

import (
	"slices"
	"time"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/request"
)

// An entity leaves memory if its handler or a caller requests it, if it was
// idle for its type's idle time, or if the executor is short of memory. It
// leaves only between two requests and with nothing in flight. A request that
// arrives in the meantime waits until the entity is loaded again.

const (
	// touchEvery is the resolution of an entity's time of last use.
	touchEvery = 100 * time.Millisecond
	// sweepEntities bounds the entities that one sweep examines.
	sweepEntities = 1024
	// mostIdle bounds idle times, because a resident.Tick wraps around.
	mostIdle = 200 * 24 * time.Hour
	// makeRoomTries bounds the entities that are evicted to make room for
	// another entity.
	makeRoomTries = 64
	// recycleAfter is how long an instance may be empty.
	recycleAfter = time.Second
)

// idle holds the entities of one type, the least recently used first.
type idle struct {
	resident.Idle[*entity]
	after time.Duration // idle time after which these entities leave; 0 means never
	log   resident.Log[*Type]
}

// addResident notes that an entity has come into memory.
func (m *residents) addResident(e *entity) {
	e.stopped = false
	e.touched = resident.TickAt(m.now)
	m.cache.Add(e)
	m.types.Of(e.id.Type).Resident(1)
	l := m.idle[e.id.Type]
	if l == nil {
		l = &idle{}
		m.idle[e.id.Type] = l
	}
	l.after = m.idleAfter(e.typ)
	l.Push(e)
	if l.after > 0 {
		m.scheduleSweep(m.now.UnixNano() + int64(l.after))
	}
	m.scheduleSweep(m.now.UnixNano() + int64(m.opts.HibernateAfter))
}

// scheduleSweep schedules a sweep at the given time or earlier.
func (m *residents) scheduleSweep(at int64) {
	if m.sweepAt == 0 || at < m.sweepAt {
		m.sweepAt = at
	}
}

func (m *residents) idleAfter(t *Type) time.Duration {
	after := t.PassivateAfter
	if d, set := m.opts.Settings.IdleAfter(t.Name); set {
		after = d
	}
	switch {
	case after < 0, t.AlwaysOn:
		return 0
	case after == 0:
		return min(m.opts.PassivateAfter, mostIdle)
	}
	return min(after, mostIdle)
}

// updateIdleTimes updates the idle times and schedules a sweep.
func (m *residents) updateIdleTimes() {
	for name, l := range m.idle {
		if t := m.opts.Types.Lookup(name); t != nil {
			l.after = m.idleAfter(t)
		}
	}
	m.scheduleSweep(m.now.UnixNano() + 1)
}

// removeResident notes that an entity leaves memory, for any reason.
func (m *residents) removeResident(e *entity) {
	m.unweigh(e)
	if !e.idler.In() {
		return
	}
	m.cache.Remove(e)
	m.types.Of(e.id.Type).Resident(-1)
	l := m.idle[e.id.Type]
	if l.Take(e); l.First() == nil && l.log.Count() == 0 {
		delete(m.idle, e.id.Type)
	}
}

// noteUse notes a request for an entity in memory.
func (m *residents) noteUse(e *entity) {
	if e.touched.Since(m.now) < touchEvery {
		return
	}
	e.touched = resident.TickAt(m.now)
	m.cache.Touch(e)
	l := m.idle[e.id.Type]
	l.Take(e)
	if l.Push(e); l.Next() == e {
		m.scheduleSweep(m.now.UnixNano() + int64(m.opts.HibernateAfter))
	}
}

// isIdle reports whether the entity has no request and nothing in flight, so
// that it can leave memory without any effect.
func (e *entity) isIdle() bool {
	return e.phase == inMemory && e.waiting.Len() == 0 && !e.inst.IsBusy() && e.last <= e.shard.log.DecidedTo()
}

// passivateIdle evicts entities that were idle for their type's idle time, and
// then closes instances that are mostly empty.
func (m *residents) passivateIdle() {
	m.shedWindows()
	now, looked, left := m.now.UnixNano(), 0, m.empty
	if m.sweepAt == 0 || now < m.sweepAt {
		return
	}
	m.sweepAt, m.empty = 0, false
	for _, l := range m.idle {
		for l.after > 0 && looked < sweepEntities {
			m.wakeOldest(l)
			e := l.First()
			if e == nil {
				break
			}
			if wait := l.after - e.touched.Since(m.now); wait > 0 {
				m.scheduleSweep(now + int64(wait))
				break
			}
			looked++
			if e.isIdle() && m.exec.mustCheckFirst(e, false) {
				m.scheduleSweep(now + 1)
				break
			}
			if e.isIdle() {
				m.stats.Passivations++
				m.evict(e)
				m.exec.revive(e)
				left = true
				continue
			}
			e.touched = resident.TickAt(m.now)
			l.Take(e)
			l.Push(e)
		}
		looked += m.hibernateIdle(l, sweepEntities-looked)
	}
	if looked >= sweepEntities {
		m.scheduleSweep(now + 1)
	}
	if left {
		m.recycle()
	}
}

// recycle closes instances that are empty or that have grown and are mostly
// empty, because guest memory never shrinks. Their entities are loaded again on
// their next request.
func (m *residents) recycle() {
	for _, in := range slices.Clone(m.pools.All()) {
		mostly := in.IsMostlyEmpty(m.opts.InstanceBytes / 2)
		if !in.IsBusy() && in.HasGuest() && (in.Resident() == 0 || mostly && m.isIdle(in)) {
			m.stats.Recycled++
			m.closeInstance(in)
		}
	}
}

// isIdle reports whether no entity of the instance has work.
func (m *residents) isIdle(in *instance) bool {
	for _, e := range in.Entities() {
		if e != nil && !e.isIdle() {
			return false
		}
	}
	return true
}

// shed evicts the entities that the cache chooses until the pool has room for
// another entity, and reports whether there is room.
func (m *residents) shed(p *instancePool[*entity]) bool {
	for range makeRoomTries {
		e := m.victim()
		if e == nil {
			return false
		}
		if e.isIdle() && m.exec.mustCheckFirst(e, false) {
			m.cache.Touch(e)
			continue
		}
		if !e.isIdle() {
			m.cache.Touch(e)
			continue
		}
		m.stats.Shed++
		e.stopped = true
		m.evict(e)
		m.exec.revive(e)
		if p.WithRoom() != nil {
			return true
		}
	}
	return false
}

// passivate executes a request to passivate an entity, in the order of the
// entity's queue.
func (c *core) passivate(e *entity, r *request.Request) {
	c.stats.Passivations++
	c.unloaded[e] = struct{}{}
	recorded := c.decider.recordStop(e, r)
	e.stopped = !e.typ.Singleton
	c.residents.evict(e)
	if !recorded {
		e.shard.settle(r, request.Result{})
	}
	c.revive(e)
}

// A singleton type has one entity. That entity is in memory on the leader of
// its shard, whether or not it ever had a command, and cannot be passivated.

// errSingletonStays rejects the passivation of a singleton. A handler's request for it
// is ignored.
var errSingletonStays = &request.RejectedError{Code: "singleton", Message: "the entity of a singleton type stays resident"}

// leave passivates an entity that must not be started before its next request.
func (c *core) leave(e *entity) {
	e.stopped = !e.typ.Singleton
	if c.mustCheckFirst(e, true) {
		return
	}
	if e.idler.In() {
		c.stats.Passivations++
	}
	c.reload(e)
}
