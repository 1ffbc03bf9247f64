package entity

import (
	"slices"
	"time"
)

const (
	// maxFaultyEntities bounds the entities of an executor whose faults are remembered. The quarter
	// of them that would be forgotten first makes room.
	maxFaultyEntities = 16384
	// lookEvery is how often it is looked, at most, which are to be forgotten.
	lookEvery = time.Minute
	// parkedLeast is how many entities a Parked has before it is swept.
	parkedLeast = 64
)

// supervised is an entity of an executor.
type supervised interface {
	comparable
	// Faults is what is remembered of the entity; nil for nothing.
	Faults() *faultState
	// Known reports that the executor still has the entity.
	Known() bool
}

// faultSet is the entities of an executor with faults to remember, which are known while
// they are not in memory for that alone. Some in it have none any more: they
// leave when it is looked through.
type faultSet[E supervised] struct {
	forget   func(E)
	entities map[E]struct{}
	at       int64 // when to look through it, unix nanoseconds; 0 for never
}

// newFaultSet returns an empty set. forget is told of each entity whose faults are
// over.
func newFaultSet[E supervised](forget func(E)) faultSet[E] {
	return faultSet[E]{forget: forget, entities: make(map[E]struct{})}
}

// At is when Look has something to do, unix nanoseconds; 0 for never.
func (s *faultSet[E]) At() int64 { return s.at }

// Len is how many entities are in the set.
func (s *faultSet[E]) Len() int { return len(s.entities) }

// Add takes in an entity that has faulted.
func (s *faultSet[E]) Add(e E, now time.Time) {
	s.entities[e] = struct{}{}
	if s.at == 0 {
		s.at = e.Faults().until
	}
	if len(s.entities) > maxFaultyEntities {
		s.sweep(now.UnixNano(), true)
	}
}

// Look forgets faults whose time has come.
func (s *faultSet[E]) Look(now time.Time) {
	if s.at != 0 && now.UnixNano() >= s.at {
		s.sweep(now.UnixNano(), false)
	}
}

// sweep forgets the faults that have been remembered for long enough, and where
// the set is full those that have been the longest.
func (s *faultSet[E]) sweep(now int64, full bool) {
	ends := make([]int64, 0, len(s.entities))
	for e := range s.entities {
		switch f := e.Faults(); {
		case !e.Known() || f == nil || f.inRow == 0:
			delete(s.entities, e)
		case f.until <= now:
			s.end(e)
		default:
			ends = append(ends, f.until)
		}
	}
	slices.Sort(ends)
	if full && len(ends) > maxFaultyEntities/4*3 {
		ends = ends[len(ends)-maxFaultyEntities/4*3:]
		for e := range s.entities {
			if e.Faults().until < ends[0] {
				s.end(e)
			}
		}
	}
	if s.at = 0; len(ends) > 0 {
		s.at = max(ends[0], now+int64(lookEvery))
	}
}

func (s *faultSet[E]) end(e E) {
	delete(s.entities, e)
	s.forget(e)
}

// quarantineQueue finds a shard's parked entities without a look at the others. Some in
// it are parked no more: they leave when it is read or has doubled.
type quarantineQueue[E supervised] struct {
	entities map[E]struct{}
	sweepAt  int
}

// Add takes in an entity that is parked.
func (p *quarantineQueue[E]) Add(e E, now time.Time) {
	if p.entities == nil {
		p.entities, p.sweepAt = make(map[E]struct{}), parkedLeast
	}
	if p.entities[e] = struct{}{}; len(p.entities) > p.sweepAt {
		p.sweep(now)
		p.sweepAt = max(parkedLeast, 2*len(p.entities))
	}
}

func (p *quarantineQueue[E]) sweep(now time.Time) {
	for e := range p.entities {
		if f := e.Faults(); f == nil || !f.Parked(now) || !e.Known() {
			delete(p.entities, e)
		}
	}
}

// Each calls fn with the entities that are parked, in no order.
func (p *quarantineQueue[E]) Each(now time.Time, fn func(E)) {
	p.sweep(now)
	for e := range p.entities {
		fn(e)
	}
}
