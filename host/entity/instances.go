package entity

import (
	"slices"
)

// place returns an instance with room for another entity. A new instance has no
// guest yet.
func (m *residents) place(t *Type, alone bool) *instance {
	p := m.pools.Of(t, m.opts.InstanceBytes)
	if !alone {
		if in := p.WithRoom(); in != nil {
			return in
		}
	}
	if m.makeRoom(p); !alone && t.Memory != nil && p.WithRoom() == nil && !t.Memory.HasRoom() {
		m.shedOwn(p)
	}
	if !alone {
		if in := p.WithRoom(); in != nil {
			return in
		}
	}
	return m.pools.Open(p, alone)
}

// makeRoom keeps the executor's guest memory within its budget. It evicts
// entities until an instance of the pool has room. If that is not enough, it
// closes instances that are mostly empty, and finally the oldest instances.
func (m *residents) makeRoom(p *instancePool[*entity]) {
	if _, sum := m.usage(); sum <= m.opts.ExecutorBytes || m.shed(p) {
		return
	}
	m.recycle()
	_, sum := m.usage()
	for all := m.pools.All(); len(all) > 0 && sum > m.opts.ExecutorBytes; all = m.pools.All() {
		sum -= all[0].Bytes()
		m.closeInstance(all[0])
	}
}

// shedLooks is the number of an instance's entities that are compared to find a
// victim.
const shedLooks = 256

// shedOwn evicts an entity of the pool, for a type that cannot have another
// instance. It examines a few entities and evicts the one that has been idle
// longest.
func (m *residents) shedOwn(p *instancePool[*entity]) {
	var victim *entity
	for _, in := range p.Instances() {
		if in.IsReserved() || in.IsBusy() {
			continue
		}
		for _, e := range in.Entities()[:min(len(in.Entities()), shedLooks)] {
			if e != nil && e.phase == inMemory && e.isIdle() && (victim == nil || e.touched < victim.touched) {
				victim = e
			}
		}
	}
	if victim != nil {
		m.stats.Shed++
		victim.stopped = true
		m.evict(victim)
		m.exec.revive(victim)
	}
}

// attach adds an entity to an instance.
func (e *entity) attach(in *instance) { e.inst, e.handle = in, in.Attach(e) }

// evict removes the entity's state from its instance. The entity is loaded
// again on its next request. If the guest faults while it drops the state, the
// whole instance is closed.
func (m *residents) evict(e *entity) {
	m.removeResident(e)
	in := e.inst
	if in == nil {
		e.unload()
		return
	}
	l := e.load()
	h, begun := e.handle, e.phase == inMemory || l != nil && l.HasState()
	if e.blocked {
		in.RemoveBlocked(e)
		e.blocked = false
	}
	e.inst = nil
	e.unload()
	if err := in.Detach(h, begun); err != nil {
		m.closeInstance(in)
		return
	}
	switch {
	case in.Resident() > 0:
	case in.IsReserved():
		m.closeInstance(in)
	case !m.empty: // keep the instance, because another entity may come soon
		m.empty = true
		m.scheduleSweep(m.now.Add(recycleAfter).UnixNano())
	}
}

// closeInstance closes an instance. Its entities are loaded again on their next
// request, and their proposals are not affected. If a guest call is in
// progress, the guest is closed after it.
func (m *residents) closeInstance(in *instance) {
	if in.IsClosed() {
		return
	}
	m.evictHibernated(in)
	entities, blocked := m.pools.Close(in)
	for _, e := range blocked {
		e.blocked = false
	}
	for _, e := range entities {
		if e != nil {
			m.removeResident(e)
			e.inst = nil
			e.unload()
			m.exec.revive(e)
		}
	}
	if !in.IsBusy() {
		m.shut(in)
	}
}

// closeEmpty closes the instances without entities.
func (m *residents) closeEmpty() {
	for _, in := range slices.Clone(m.pools.All()) {
		if in.Resident() == 0 {
			m.closeInstance(in)
		}
	}
}

func (m *residents) shut(in *instance) {
	if err := in.CloseGuest(); err != nil {
		m.opts.Logger.Warn("cannot close a guest instance", "entity_type", in.Pool().Type().Name, "error", err)
	}
}

// usage returns the number of instances and the bytes of their guests.
func (m *residents) usage() (instances int, bytes int64) { return len(m.pools.All()), m.pools.Bytes() }
