package instances

import (
	"slices"

	"github.com/hostd/hostd/host/entity/binding"
)

// Pool is a lane's instances of one module.
type Pool[E comparable] struct {
	typ       *binding.Type // any type of the module: they share Instantiate
	most      int64         // bytes at which an instance is full
	instances []*Instance[E]
	counters  []*Counter // by the types' indexes in the module
}

// Pools are all instances of a lane.
type Pools[E comparable] struct {
	pools    map[binding.Pool]*Pool[E]
	all      []*Instance[E] // oldest first
	numbered map[uint32]*Instance[E]
	opened   uint32 // the number of the last one
}

// NewPools returns pools without instances.
func NewPools[E comparable]() Pools[E] {
	return Pools[E]{pools: make(map[binding.Pool]*Pool[E]), numbered: make(map[uint32]*Instance[E])}
}

// Of returns the pool of a type, whose instances are full at so many bytes
// where the type does not say.
func (p *Pools[E]) Of(t *binding.Type, full int64) *Pool[E] {
	pool := p.pools[t.Pool()]
	if pool == nil {
		pool = &Pool[E]{typ: t, most: full}
		if t.FullAt > 0 {
			pool.most = min(pool.most, t.FullAt)
		}
		p.pools[t.Pool()] = pool
	}
	return pool
}

// All are the instances, the oldest first.
func (p *Pools[E]) All() []*Instance[E] { return p.all }

// Numbered is an instance by its number.
func (p *Pools[E]) Numbered(n uint32) *Instance[E] { return p.numbered[n] }

// Bytes is the memory of all guests.
func (p *Pools[E]) Bytes() (sum int64) {
	for _, in := range p.all {
		sum += in.bytes
	}
	return sum
}

// Open returns a new instance in a pool, without a guest; alone reserves it for
// one entity.
func (p *Pools[E]) Open(pool *Pool[E], alone bool) *Instance[E] {
	p.opened++
	in := &Instance[E]{pool: pool, alone: alone, number: p.opened}
	p.numbered[in.number] = in
	pool.instances = append(pool.instances, in)
	p.all = append(p.all, in)
	p.pools[pool.typ.Pool()] = pool // it may have been emptied and forgotten
	return in
}

// Close gives an instance up, and returns the entities in it, with gaps, and
// those that wait for a visit. The guest stays as it is.
func (p *Pools[E]) Close(in *Instance[E]) (entities, blocked []E) {
	in.closed = true
	delete(p.numbered, in.number)
	entities, blocked = in.entities, in.blocked
	in.entities, in.dormant, in.free, in.blocked, in.leaving, in.resident = nil, nil, nil, nil, nil, 0
	in.pool.instances = remove(in.pool.instances, in)
	p.all = remove(p.all, in)
	if key := in.pool.typ.Pool(); len(in.pool.instances) == 0 && p.pools[key] == in.pool {
		delete(p.pools, key)
	}
	return entities, blocked
}

func remove[E comparable](s []*Instance[E], in *Instance[E]) []*Instance[E] {
	return slices.DeleteFunc(s, func(x *Instance[E]) bool { return x == in })
}

// Type is one of the types whose entities are in the pool.
func (p *Pool[E]) Type() *binding.Type { return p.typ }

// Instances are the pool's.
func (p *Pool[E]) Instances() []*Instance[E] { return p.instances }

// MaxEntities bounds the entities of one instance. All of them leave at once if
// the guest faults, which a caller may cause, and the executor does nothing
// else meanwhile.
const MaxEntities = 32_768

// Roomy returns an instance with room, nil when there is none: one that has not
// grown to its bound yet, or holds less than it did at its size.
func (p *Pool[E]) Roomy() *Instance[E] {
	for i := len(p.instances) - 1; i >= 0; i-- {
		in := p.instances[i]
		opening := in.guest == nil
		if !in.alone && (in.bytes < p.most || in.resident < in.capacity) && in.resident < MaxEntities && (!in.busy || opening) {
			return in
		}
	}
	return nil
}

// Counter returns the counters of a type of the pool's module; all has those of
// all types.
func (p *Pool[E]) Counter(all *Counters, t *binding.Type) *Counter {
	for int(t.Index) >= len(p.counters) {
		p.counters = append(p.counters, nil)
	}
	if p.counters[t.Index] == nil {
		p.counters[t.Index] = all.Of(t.Name)
	}
	return p.counters[t.Index]
}
