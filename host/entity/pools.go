package entity

import (
	"slices"
)

// instancePool holds an executor's instances of one module.
type instancePool[E comparable] struct {
	typ       *Type // any type of the module, since all its types share Instantiate
	most      int64 // bytes at which an instance is full
	instances []*guestInstance[E]
	counters  []*typeCounter // counters of types, by the type's index in the module
}

// instancePools holds all instances of an executor.
type instancePools[E comparable] struct {
	pools      map[guestPool]*instancePool[E]
	all        []*guestInstance[E] // instances, oldest first
	numbered   map[uint32]*guestInstance[E]
	lastNumber uint32 // number of the latest instance
}

// newInstancePools returns empty pools.
func newInstancePools[E comparable]() instancePools[E] {
	return instancePools[E]{pools: make(map[guestPool]*instancePool[E]), numbered: make(map[uint32]*guestInstance[E])}
}

// Of returns the pool of a type. full is the size in bytes at which its
// instances are full, unless the type sets a lower size.
func (p *instancePools[E]) Of(t *Type, full int64) *instancePool[E] {
	pool := p.pools[t.pool()]
	if pool == nil {
		pool = &instancePool[E]{typ: t, most: full}
		if t.FullAt > 0 {
			pool.most = min(pool.most, t.FullAt)
		}
		p.pools[t.pool()] = pool
	}
	return pool
}

// All returns the instances, the oldest first.
func (p *instancePools[E]) All() []*guestInstance[E] { return p.all }

// ByNumber returns the instance with a number.
func (p *instancePools[E]) ByNumber(n uint32) *guestInstance[E] { return p.numbered[n] }

// Bytes is the memory of all guests.
func (p *instancePools[E]) Bytes() (sum int64) {
	for _, in := range p.all {
		sum += in.bytes
	}
	return sum
}

// Open returns a new instance in a pool, without a guest. alone reserves it for
// one entity.
func (p *instancePools[E]) Open(pool *instancePool[E], alone bool) *guestInstance[E] {
	p.lastNumber++
	in := &guestInstance[E]{pool: pool, reserved: alone, number: p.lastNumber}
	p.numbered[in.number] = in
	pool.instances = append(pool.instances, in)
	p.all = append(p.all, in)
	p.pools[pool.typ.pool()] = pool // the pool may have been deleted when it was empty
	return in
}

// Close removes an instance, and returns its entities by handle, with zero
// values, and the entities that wait for a guest call. It does not close the guest.
func (p *instancePools[E]) Close(in *guestInstance[E]) (entities, blocked []E) {
	in.closed = true
	delete(p.numbered, in.number)
	entities, blocked = in.entities, in.blocked
	in.entities, in.hibernated, in.free, in.blocked, in.leaving, in.resident = nil, nil, nil, nil, nil, 0
	in.pool.instances = remove(in.pool.instances, in)
	p.all = remove(p.all, in)
	if key := in.pool.typ.pool(); len(in.pool.instances) == 0 && p.pools[key] == in.pool {
		delete(p.pools, key)
	}
	return entities, blocked
}

func remove[E comparable](s []*guestInstance[E], in *guestInstance[E]) []*guestInstance[E] {
	return slices.DeleteFunc(s, func(x *guestInstance[E]) bool { return x == in })
}

// Type is one of the types whose entities are in the pool.
func (p *instancePool[E]) Type() *Type { return p.typ }

// Instances are the pool's instances.
func (p *instancePool[E]) Instances() []*guestInstance[E] { return p.instances }

// maxInstanceEntities bounds the entities of an instance. If the guest faults,
// which a caller may cause, all of them leave in one turn, and the executor
// does nothing else in the meantime.
const maxInstanceEntities = 32_768

// WithRoom returns an instance with room for another entity, or nil. An
// instance has room if its memory is below the limit, or if it once had more
// entities in the same memory than it has now.
func (p *instancePool[E]) WithRoom() *guestInstance[E] {
	for i := len(p.instances) - 1; i >= 0; i-- {
		in := p.instances[i]
		opening := in.guest == nil
		if !in.reserved && (in.bytes < p.most || in.resident < in.capacity) && in.resident < maxInstanceEntities && (!in.busy || opening) {
			return in
		}
	}
	return nil
}

// Counter returns the counters of a type of the pool's module. all has the
// counters of all types.
func (p *instancePool[E]) Counter(all *typeCounters, t *Type) *typeCounter {
	for int(t.Index) >= len(p.counters) {
		p.counters = append(p.counters, nil)
	}
	if p.counters[t.Index] == nil {
		p.counters[t.Index] = all.Of(t.Name)
	}
	return p.counters[t.Index]
}
