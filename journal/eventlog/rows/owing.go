package rows

import (
	"maps"

	"github.com/hostd/hostd/journal/eventlog/sorted"
	"github.com/hostd/hostd/journal/store"
)

// owing are the entities that have rows which are to be removed a slice at a
// time, in the order of their keys: that order, and what their heads say, is
// all that decides which rows an entry removes, so it is the same on all
// replicas.
type owing struct {
	entities sorted.Map[string, *Owed]
	lives    map[string]uint32 // of those that have timers of earlier lives
}

// ManyTimers is from how many timers on those of an entity are counted in
// memory.
const ManyTimers = 64

// CountTimers takes in how many timers an entity has, whose head may leave the
// memory.
func (k *Known) CountTimers(entity string, h *store.Head) {
	switch {
	case h.Timers < ManyTimers:
		delete(k.many, entity)
	case k.many == nil:
		k.many = map[string]store.Head{entity: {Timers: h.Timers, Life: h.Life}}
	default:
		k.many[entity] = store.Head{Timers: h.Timers, Life: h.Life}
	}
}

// ManyTimers returns how many timers an entity has and in which life it is, in
// a head that has nothing else, if these are at least ManyTimers.
func (k *Known) ManyTimers(entity string) (h store.Head, ok bool) {
	h, ok = k.many[entity]
	return h, ok
}

// Owed is what is known of such an entity.
type Owed struct {
	// From is where to look for its timers of earlier lives: nothing is left
	// before. It saves reading what the store holds of removed rows, and decides
	// nothing.
	From string
	life uint32
}

// Owe takes in what the head of an entity says that is to be removed.
func (k *Known) Owe(entity string, h *store.Head) {
	o := &k.owing
	if h.Left > 0 {
		if o.lives == nil {
			o.lives = make(map[string]uint32)
		}
		o.lives[entity] = h.Life
	} else {
		delete(o.lives, entity)
	}
	if !h.Owes() {
		o.entities.Delete(entity)
		return
	}
	owed, ok := o.entities.Get(entity)
	if !ok {
		owed = &Owed{}
		o.entities.Set(entity, owed)
	}
	if owed.life != h.Life { // rows of another life come before those that are left
		owed.life, owed.From = h.Life, ""
	}
}

// Owing returns the first of the entities that have rows to be removed.
func (k *Known) Owing() (entity string, owed *Owed, ok bool) { return k.owing.entities.First() }

// Lives returns in which life those entities are that have timers of earlier
// lives: what the store has of these is not set. There is at most one for a
// dozen timers that are left.
func (k *Known) Lives() map[string]uint32 { return maps.Clone(k.owing.lives) }
