package entity

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal"
)

// instance is a guest and the entities whose states it holds, by handle.
// Handles are dense and used again after a drop.
type instance struct {
	guest    Guest
	pool     *pool
	entities []*entity // by handle; nil where free
	free     []uint32
	resident int
	alone    bool // reserved for one entity that faulted before
	dead     bool
}

// pool is a lane's instances of one module.
type pool struct {
	typ       *Type // any type of the module: they share Instantiate
	instances []*instance
	limit     int64 // bytes of guest memory at which another instance is opened
}

// place returns an instance with room for one more entity.
func (c *core) place(t *Type, alone bool) (*instance, error) {
	p := c.pools[t.Digest]
	if p == nil {
		p = &pool{typ: t, limit: c.opts.InstanceBytes}
		c.pools[t.Digest] = p
	}
	if !alone {
		for i := len(p.instances) - 1; i >= 0; i-- {
			if in := p.instances[i]; !in.alone && in.guest.MemoryBytes() < p.limit {
				return in, nil
			}
		}
	}
	c.makeRoom()
	g, err := t.Instantiate(context.Background())
	if err != nil {
		return nil, fmt.Errorf("instantiate the module of entity type %s: %w", t.Name, err)
	}
	in := &instance{guest: g, pool: p, alone: alone}
	p.instances = append(p.instances, in)
	c.instances = append(c.instances, in)
	return in, nil
}

// makeRoom closes the oldest instances while the lane's guest memory is over
// its budget. Their entities load again when they are next asked for.
func (c *core) makeRoom() {
	var sum int64
	for _, in := range c.instances {
		sum += in.guest.MemoryBytes()
	}
	for len(c.instances) > 0 && sum > c.opts.LaneBytes {
		in := c.instances[0]
		sum -= in.guest.MemoryBytes()
		c.closeInstance(in)
	}
}

func (in *instance) attach(e *entity) uint64 {
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
	e.inst, e.handle = in, uint64(h)
	return uint64(h)
}

// detach forgets the entity's place without telling the guest.
func (in *instance) detach(e *entity) {
	in.entities[e.handle] = nil
	in.free = append(in.free, uint32(e.handle))
	in.resident--
	e.inst = nil
}

// evict makes the entity's state leave its instance; it loads again when next
// asked for. A guest that faults while it forgets loses the whole instance.
func (c *core) evict(e *entity) {
	in := e.inst
	if in == nil {
		e.unload()
		return
	}
	h := e.handle
	in.detach(e)
	e.unload()
	if err := in.guest.Drop(h); err != nil {
		c.closeInstance(in)
	} else if in.resident == 0 && in.alone {
		c.closeInstance(in)
	}
}

// closeInstance ends an instance; the entities in it load again when they are
// next asked for. What they have in flight is not touched.
func (c *core) closeInstance(in *instance) {
	if in.dead {
		return
	}
	in.dead = true
	for _, e := range in.entities {
		if e != nil {
			e.inst = nil
			e.unload()
			c.revive(e)
		}
	}
	in.entities, in.free, in.resident = nil, nil, 0
	in.pool.instances = remove(in.pool.instances, in)
	c.instances = remove(c.instances, in)
	if len(in.pool.instances) == 0 {
		delete(c.pools, in.pool.typ.Digest)
	}
	if err := in.guest.Close(); err != nil {
		c.opts.Logger.Warn("closing a guest instance failed", "entity_type", in.pool.typ.Name, "error", err)
	}
}

func remove(s []*instance, in *instance) []*instance {
	for i, x := range s {
		if x == in {
			return append(s[:i], s[i+1:]...)
		}
	}
	return s
}

// usage counts for metrics and for shedding.
func (c *core) usage() (instances int, bytes int64) {
	for _, in := range c.instances {
		bytes += in.guest.MemoryBytes()
	}
	return len(c.instances), bytes
}

var zeroDigest journal.Digest
