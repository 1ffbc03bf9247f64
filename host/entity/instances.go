package entity

import (
	"slices"

	"github.com/hostd/hostd/journal"
)

// instance is a guest and the entities whose states it holds, by handle.
// Handles are dense and used again after a drop.
type instance struct {
	guest    Guest // nil until the first visit has returned
	pool     *pool
	entities []*entity // by handle; nil where free
	folds    []place   // by handle, of those that are folded; 0 for others
	free     []uint32
	number   uint32
	bytes    int64 // of guest memory, after the last visit
	resident int
	capacity int  // most entities that it held at this size
	alone    bool // reserved for one entity that faulted before
	dead     bool

	// busy: a visit is under way. Until it returns nothing else may be called,
	// so entities wait in blocked and dropped handles in leaving.
	busy    bool
	blocked []*entity
	leaving []uint32
}

// poolKey names a pool: a module, and the revision of a type that has instances
// of its own.
type poolKey struct {
	module   journal.Digest
	revision uint64
}

func (t *Type) pool() poolKey {
	if t.OwnInstances {
		return poolKey{t.Digest, t.Revision}
	}
	return poolKey{module: t.Digest}
}

// pool is a lane's instances of one module.
type pool struct {
	typ       *Type // any type of the module: they share Instantiate
	most      int64 // bytes at which an instance is full
	instances []*instance
	tallies   []*typeTally // by the types' indexes in the module
}

// place returns an instance with room for one more entity; a new one has no
// guest yet.
func (c *core) place(t *Type, alone bool) *instance {
	p := c.pools[t.pool()]
	if p == nil {
		p = &pool{typ: t, most: c.opts.InstanceBytes}
		if t.FullAt > 0 {
			p.most = min(p.most, t.FullAt)
		}
		c.pools[t.pool()] = p
	}
	if !alone {
		if in := p.roomy(); in != nil {
			return in
		}
	}
	if c.makeRoom(p); !alone && t.NoRoom != nil && p.roomy() == nil && t.NoRoom() {
		c.shedOwn(p)
	}
	if !alone {
		if in := p.roomy(); in != nil {
			return in
		}
	}
	c.opened++
	in := &instance{pool: p, alone: alone, number: c.opened}
	c.numbered[in.number] = in
	p.instances = append(p.instances, in)
	c.instances = append(c.instances, in)
	c.pools[t.pool()] = p // making room may have emptied and forgotten it
	return in
}

// roomy returns an instance with room, nil when there is none: one that has
// not grown to its bound yet, or holds less than it did at its size.
func (p *pool) roomy() *instance {
	for i := len(p.instances) - 1; i >= 0; i-- {
		in := p.instances[i]
		opening := in.guest == nil
		if !in.alone && (in.bytes < p.most || in.resident < in.capacity) && (!in.busy || opening) {
			return in
		}
	}
	return nil
}

// makeRoom keeps the lane's guest memory in its budget: entities leave until
// an instance of the pool has room again, or instances that are mostly empty
// are closed, or at last the oldest ones.
func (c *core) makeRoom(p *pool) {
	if _, sum := c.usage(); sum <= c.opts.LaneBytes || c.shed(p) {
		return
	}
	c.recycle()
	_, sum := c.usage()
	for len(c.instances) > 0 && sum > c.opts.LaneBytes {
		sum -= c.instances[0].bytes
		c.closeInstance(c.instances[0])
	}
}

// shedLooks is among how many of an instance's entities one is looked for that
// can leave.
const shedLooks = 256

// shedOwn lets the entity go that was idle longest of some that are in the
// pool, for a type that may not have another instance.
func (c *core) shedOwn(p *pool) {
	var victim *entity
	for _, in := range p.instances {
		if in.alone || in.busy {
			continue
		}
		for _, e := range in.entities[:min(len(in.entities), shedLooks)] {
			if e != nil && e.phase == resident && e.restful() && (victim == nil || e.touched < victim.touched) {
				victim = e
			}
		}
	}
	if victim != nil {
		c.stats.Shed++
		victim.asleep = true
		c.evict(victim)
		c.revive(victim)
	}
}

func (in *instance) attach(e *entity) {
	var h uint32
	if n := len(in.free); n > 0 {
		h = in.free[n-1]
		in.free = in.free[:n-1]
		in.entities[h] = e
	} else {
		h = uint32(len(in.entities))
		in.entities = append(in.entities, e)
	}
	in.resident++
	in.capacity = max(in.capacity, in.resident)
	e.inst, e.handle = in, h
}

// evict makes the entity's state leave its instance; it loads again when next
// asked for. A guest that faults while it forgets loses the whole instance.
func (c *core) evict(e *entity) {
	c.leaves(e)
	in := e.inst
	if in == nil {
		e.unload()
		return
	}
	l := e.load()
	h, begun := e.handle, e.phase == resident || l != nil && l.begun
	in.resident--
	if e.blocked {
		in.blocked = slices.DeleteFunc(in.blocked, func(x *entity) bool { return x == e })
		e.blocked = false
	}
	e.inst = nil
	e.unload()
	in.entities[h] = nil
	switch {
	case !begun:
		in.free = append(in.free, h)
	case in.busy:
		in.leaving = append(in.leaving, h)
	default:
		if err := in.guest.Drop(uint64(h)); err != nil {
			c.closeInstance(in)
			return
		}
		in.free = append(in.free, h)
	}
	switch {
	case in.resident > 0:
	case in.alone:
		c.closeInstance(in)
	case !c.residents.empty: // soon another entity may come, or not
		c.residents.empty = true
		c.look(c.now.Add(recycleAfter).UnixNano())
	}
}

// closeInstance gives an instance up; the entities in it load again when they
// are next asked for. What they have in flight is not touched. A visit that
// is under way ends by itself; the guest is closed after it.
func (c *core) closeInstance(in *instance) {
	if in.dead {
		return
	}
	c.leaveFolds(in)
	in.dead = true
	delete(c.numbered, in.number)
	entities, blocked := in.entities, in.blocked
	in.entities, in.folds, in.free, in.blocked, in.leaving, in.resident = nil, nil, nil, nil, nil, 0
	in.pool.instances = remove(in.pool.instances, in)
	c.instances = remove(c.instances, in)
	if len(in.pool.instances) == 0 && c.pools[in.pool.typ.pool()] == in.pool {
		delete(c.pools, in.pool.typ.pool())
	}
	for _, e := range blocked {
		e.blocked = false
	}
	for _, e := range entities {
		if e != nil {
			c.leaves(e)
			e.inst = nil
			e.unload()
			c.revive(e)
		}
	}
	if !in.busy {
		c.shut(in)
	}
}

// closeEmpty gives up the instances that no entity is in.
func (c *core) closeEmpty() {
	for _, in := range slices.Clone(c.instances) {
		if in.resident == 0 {
			c.closeInstance(in)
		}
	}
}

func (c *core) shut(in *instance) {
	if in.guest == nil {
		return
	}
	if err := in.guest.Close(); err != nil {
		c.opts.Logger.Warn("closing a guest instance failed", "entity_type", in.pool.typ.Name, "error", err)
	}
	in.guest = nil
}

func remove(s []*instance, in *instance) []*instance {
	return slices.DeleteFunc(s, func(x *instance) bool { return x == in })
}

// usage counts for metrics and for shedding.
func (c *core) usage() (instances int, bytes int64) {
	for _, in := range c.instances {
		bytes += in.bytes
	}
	return len(c.instances), bytes
}
