package entity

import (
	"slices"
	"time"
)

const (
	// maxFaultyEntities bounds the entities of an executor whose faults are
	// remembered. If there are more, the executor forgets the quarter of them
	// whose faults would expire first.
	maxFaultyEntities = 16384
	// lookEvery is the minimum interval between two sweeps for expired faults.
	lookEvery = time.Minute
	// quarantineSweepLeast is the minimum size at which a quarantineQueue is swept.
	quarantineSweepLeast = 64
)

// supervised is an entity whose faults are counted.
type supervised interface {
	comparable
	// Faults returns the entity's fault state, or nil if there is none.
	Faults() *faultState
	// IsKnown reports whether the executor still has the entity.
	IsKnown() bool
}

// faultSet holds the entities of an executor with faults to remember. A cold
// entity is kept only because of its faults. Until the next sweep, the set may
// contain entities without faults.
type faultSet[E supervised] struct {
	forget   func(E)
	entities map[E]struct{}
	at       int64 // time of the next sweep, unix nanoseconds; 0 for never
}

// newFaultSet returns an empty set. forget is called with each entity whose
// faults have expired.
func newFaultSet[E supervised](forget func(E)) faultSet[E] {
	return faultSet[E]{forget: forget, entities: make(map[E]struct{})}
}

// At is when Look must be called, in unix nanoseconds; 0 for never.
func (s *faultSet[E]) At() int64 { return s.at }

// Len is the number of entities in the set.
func (s *faultSet[E]) Len() int { return len(s.entities) }

// Add adds an entity that has faulted.
func (s *faultSet[E]) Add(e E, now time.Time) {
	s.entities[e] = struct{}{}
	if s.at == 0 {
		s.at = e.Faults().until
	}
	if len(s.entities) > maxFaultyEntities {
		s.sweep(now.UnixNano(), true)
	}
}

// Look forgets expired faults.
func (s *faultSet[E]) Look(now time.Time) {
	if s.at != 0 && now.UnixNano() >= s.at {
		s.sweep(now.UnixNano(), false)
	}
}

// sweep forgets expired faults and, if the set is full, the faults that expire
// first.
func (s *faultSet[E]) sweep(now int64, full bool) {
	ends := make([]int64, 0, len(s.entities))
	for e := range s.entities {
		switch f := e.Faults(); {
		case !e.IsKnown() || f == nil || f.consecutive == 0:
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

// quarantineQueue finds the quarantined entities of a shard without a search
// through all entities. It may also have entities that are no longer
// quarantined, until it is read or has doubled in size.
type quarantineQueue[E supervised] struct {
	entities map[E]struct{}
	sweepAt  int
}

// Add adds a quarantined entity.
func (p *quarantineQueue[E]) Add(e E, now time.Time) {
	if p.entities == nil {
		p.entities, p.sweepAt = make(map[E]struct{}), quarantineSweepLeast
	}
	if p.entities[e] = struct{}{}; len(p.entities) > p.sweepAt {
		p.sweep(now)
		p.sweepAt = max(quarantineSweepLeast, 2*len(p.entities))
	}
}

func (p *quarantineQueue[E]) sweep(now time.Time) {
	for e := range p.entities {
		if f := e.Faults(); f == nil || !f.IsQuarantined(now) || !e.IsKnown() {
			delete(p.entities, e)
		}
	}
}

// Each calls fn with each quarantined entity, in no particular order.
func (p *quarantineQueue[E]) Each(now time.Time, fn func(E)) {
	p.sweep(now)
	for e := range p.entities {
		fn(e)
	}
}
