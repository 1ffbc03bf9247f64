package rows

import (
	"maps"

	"github.com/hostd/hostd/journal/eventlog/sorted"
	"github.com/hostd/hostd/journal/store"
)

// owing tracks the entities with rows to be removed in slices, in key order.
// Only that order and the contents of the entity rows determine which rows an
// entry removes, so all replicas remove the same rows.
type owing struct {
	entities sorted.Map[string, *Owed]
	lives    map[string]uint32 // incarnation of each entity that has timers of earlier incarnations
}

// If an entity has at least ManyTimers timers, their count stays in memory.
const manyTimers = 64

// CountTimers records the number of an entity's timers, because its row may be
// evicted from memory.
func (k *Known) CountTimers(entity string, h *store.Head) {
	switch {
	case h.Timers < manyTimers:
		delete(k.many, entity)
	case k.many == nil:
		k.many = map[string]store.Head{entity: {Timers: h.Timers, Life: h.Life}}
	default:
		k.many[entity] = store.Head{Timers: h.Timers, Life: h.Life}
	}
}

// ManyTimers returns the number of an entity's timers and its incarnation, in
// an otherwise empty row, if it has at least ManyTimers.
func (k *Known) ManyTimers(entity string) (h store.Head, ok bool) {
	h, ok = k.many[entity]
	return h, ok
}

// Owed describes an entity that has rows to be removed.
type Owed struct {
	// From is the key before which no timers of earlier incarnations are left.
	// It saves reading deletion markers in the store, and has no influence on
	// which timers are removed.
	From string
	life uint32
}

// Owe records whether an entity has rows to be removed, according to its row.
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
	if owed.life != h.Life { // rows of an earlier incarnation sort before the rows that are left
		owed.life, owed.From = h.Life, ""
	}
}

// Owing returns the first entity that has rows to be removed.
func (k *Known) Owing() (entity string, owed *Owed, ok bool) { return k.owing.entities.First() }

// Lives returns the current incarnations of entities that have timers of
// earlier incarnations, which are no longer set although the store has them.
// There is at most one entity per dozen of such timers.
func (k *Known) Lives() map[string]uint32 { return maps.Clone(k.owing.lives) }
