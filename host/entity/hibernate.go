package entity

import (
	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/sharding"
)

// An entity that is in memory and was not used recently hibernates: the
// executor replaces its Go objects by a record of bytes that the garbage
// collector does not scan, and its state stays in its guest. The entity wakes
// up before it is used, and even before it is passivated.
//
//	inMemory <----request, eviction, end of its instance or shard---- hibernated
//	         ----nothing in flight, idle for Options.HibernateAfter---->

// canHibernate reports whether only the residents refer to the entity and a
// record can hold its whole state.
func (m *residents) canHibernate(e *entity) bool {
	_, away := m.unloaded[e]
	_, small := e.seen.Small()
	return e.isIdle() && e.extra == nil && small && !e.queued && !e.blocked && !e.awaitsActivation && !e.stalled && !away
}

// hibernate makes a record of an entity and reports whether there was memory
// for it.
func (m *residents) hibernate(l *idle, e *entity) bool {
	few, _ := e.seen.Small()
	p := m.hibernated.Put(&l.log, e.typ, &resident.Hibernated{
		ID: e.id, Key: e.key, Shard: e.shard.id, Instance: e.inst.Number(), Handle: e.handle,
		Exists: e.exists, Stopped: e.stopped, Costly: e.costly, Touched: e.touched,
		Replay:   [3]int32{e.replay.Events, e.replay.Bytes, e.replay.Snapshot},
		Sequence: e.sequence, Hash: e.hash, Window: few, Forgot: e.seen.Forgot(),
	})
	if p == 0 {
		return false
	}
	m.cache.SetHibernated(e)
	l.Take(e)
	e.shard.entities.Remove(e)
	e.inst.SetHibernated(e.handle, p)
	e.phase, e.inst, e.typ, e.seen = cold, nil, nil, window.Window{} // in case a reference to e remains
	return true
}

// wake makes an entity from a record. The entity becomes the first of its
// type's idle entities if first is set, and the last otherwise.
func (m *residents) wake(p resident.Slot, first bool) *entity {
	d, typ := m.hibernated.Take(p)
	e := &entity{
		id: d.ID, shard: m.shards[d.Shard], key: d.Key,
		phase: inMemory, exists: d.Exists, stopped: d.Stopped, costly: d.Costly,
		replay: historyReplay{Events: d.Replay[0], Bytes: d.Replay[1], Snapshot: d.Replay[2]},
		inst:   m.pools.ByNumber(d.Instance), handle: d.Handle, touched: d.Touched,
		typ: typ, sequence: d.Sequence, hash: d.Hash, seen: window.Restore(d.Window, d.Forgot),
	}
	e.inst.Wake(e.handle, e)
	e.shard.entities.Put(e)
	l := m.idle[d.ID.Type]
	if first {
		l.Unshift(e)
	} else {
		l.Push(e)
		m.scheduleSweep(m.now.UnixNano() + int64(m.opts.HibernateAfter))
	}
	m.cache.PutBack(e)
	return e
}

// find returns an entity of the shard, or nil if the executor does not know it.
// It wakes a hibernated entity.
func (m *residents) find(s *shard, id sharding.EntityID, key uint32) *entity {
	if e := s.entities.Get(id, key); e != nil {
		return e
	}
	if p := m.hibernated.Find(&s.hibernated, id, key); p != 0 {
		return m.wake(p, false)
	}
	return nil
}

// wakeNext wakes the next hibernated entity of a shard, at or after position at
// of its table. It returns nil if there is none.
func (m *residents) wakeNext(s *shard, at *int) *entity {
	for s.hibernated.Len() > 0 {
		p, place := s.hibernated.Next(*at)
		if *at = place; p != 0 {
			return m.wake(p, false) // another slot may have moved to its position
		}
	}
	return nil
}

// evictHibernated evicts the hibernated entities of an instance that is closed.
// There may be about 100,000 of them, so it wakes only entities that must be
// loaded again.
func (m *residents) evictHibernated(in *instance) {
	for _, p := range in.HibernatedSlots() {
		switch {
		case p == 0:
		case m.exec.isAlwaysOn(m.hibernated.Type(p)):
			m.wake(p, false)
		default:
			m.dropHibernated(p)
		}
	}
}

// dropHibernated evicts a hibernated entity. The caller closes the instance, and
// the entity's handle with it.
func (m *residents) dropHibernated(p resident.Slot) {
	typ := m.hibernated.Type(p)
	m.hibernated.Drop(p)
	m.known--
	m.types.Of(typ).Resident(-1)
	m.cache.DropHibernated()
	if l := m.idle[typ]; l.First() == nil && l.log.Count() == 0 {
		delete(m.idle, typ)
	}
}

// discardHibernated forgets all hibernated entities when the executor ends.
// They have nothing in flight, and their instances are about to be closed.
// Waking millions of them would take longer than a node has to stop.
func (m *residents) discardHibernated() {
	for _, s := range m.shards {
		m.known -= s.hibernated.Len()
		s.hibernated = resident.Table{}
	}
	for _, in := range m.pools.All() {
		in.ForgetHibernated()
	}
	for name, l := range m.idle {
		m.types.Of(name).Resident(-int64(l.log.Count()))
		l.log = resident.Log[*Type]{}
	}
	m.cache.ForgetHibernated()
	m.hibernated.Close()
}

// hibernateIdle examines up to most entities of a type, hibernates those that
// were not used recently, and returns how many it examined.
func (m *residents) hibernateIdle(l *idle, most int) (looked int) {
	for ; looked < most && l.Next() != nil; looked++ {
		e := l.Next()
		if wait := m.opts.HibernateAfter - e.touched.Since(m.now); wait > 0 {
			m.scheduleSweep(m.now.UnixNano() + int64(wait))
			break
		}
		if !e.isIdle() {
			m.scheduleSweep(m.now.UnixNano() + int64(m.opts.HibernateAfter))
			break
		}
		if l.MarkExamined(); m.canHibernate(e) && !m.hibernate(l, e) {
			break // there is no memory for the record
		}
	}
	return looked
}

// wakeOldest wakes the first hibernated entity of a type if it has been idle
// for the type's idle time. Otherwise it schedules the next check for the end
// of that time.
func (m *residents) wakeOldest(l *idle) {
	p, touched := m.hibernated.First(&l.log)
	if p == 0 {
		return
	}
	if wait := l.after - touched.Since(m.now); wait > 0 {
		m.scheduleSweep(m.now.UnixNano() + int64(wait))
		return
	}
	m.wake(p, true)
}

// victim returns the entity to evict: the least frequently used among the least
// recently used hibernated entities, unless the cache's victim was used even
// less often.
func (m *residents) victim() *entity {
	var best resident.Slot
	least := uint64(1 << 62)
	for _, l := range m.idle {
		m.hibernated.Oldest(&l.log, victims, func(p resident.Slot, key uint32) {
			if n := m.cache.Estimate(key); n < least {
				best, least = p, n
			}
		})
	}
	e := m.cache.Victim()
	if best == 0 || e != nil && m.cache.Estimate(e.key) < least {
		return e
	}
	return m.wake(best, true)
}

// victims is the number of hibernated entities that are compared per type.
const victims = 8

// hibernatedOwner implements resident.Owner for the residents.
type hibernatedOwner struct{ m *residents }

func (o hibernatedOwner) Table(shard sharding.ShardID) *resident.Table {
	return &o.m.shards[shard].hibernated
}

func (o hibernatedOwner) OnMove(instance, handle uint32, to resident.Slot) {
	o.m.pools.ByNumber(instance).MoveHibernated(handle, to)
}
