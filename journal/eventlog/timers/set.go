// Package timers is what a shard has of its entities' timers that is not in the
// store yet, and reads both as one:
//
//	Stage ─Commit─▶ fresh ─Take─▶ taken ─Flushed─▶ store
//
// Entries are judged through a Stage. The head of an entity holds some of its
// timers; further ones have a row each. It has no goroutine and no lock of its
// own.
package timers

import (
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/sorted"
	"github.com/hostd/hostd/journal/store"
)

// change is what an entry did to one timer: it is set, or gone. It is never
// modified once it is in a layer.
type change struct {
	timer store.Timer // Command is empty when it is gone
	row   bool        // it is under store.ClassTimer: its head has no room for it
	// stored is the due time under which the layer below has the timer; only
	// with has. storedRow: there it is under store.ClassTimer.
	stored    int64
	has       bool
	storedRow bool
}

func (t *change) gone() bool { return len(t.timer.Command) == 0 }

// Set is a shard's timers that are not in the store yet, by entity, life and
// name as keys hold them: first those that no batch has taken, then those of
// the batch on its way. Only the applying goroutine changes them, under the
// lock that readers hold; the floor is the readers'.
type Set struct {
	rows         *rows.Known
	fresh, taken *Changes // nil for none

	// No timer in the store is due before floor, if it is known: below it there
	// may be many deleted keys. lowest is the earliest that was set since the
	// latest of the readers began, which is the one that may raise the floor.
	floor   int64
	known   bool
	lowest  int64
	readers uint64 // that ever began
}

// NewSet is the empty set of a shard whose rows are these.
func NewSet(known *rows.Known) *Set { return &Set{rows: known} }

// Changes are timers on their way to the store, by key.
type Changes struct{ all sorted.Map[string, *change] }

// get returns what is said of a timer, also of no changes.
func (c *Changes) get(key string) (*change, bool) {
	if c == nil {
		return nil, false
	}
	return c.all.Get(key)
}

// from yields the changes from a key on, also of no changes.
func (c *Changes) from(key string) func(yield func(string, *change) bool) {
	if c == nil {
		return func(func(string, *change) bool) {}
	}
	return c.all.From(key)
}

// overlay returns what has changed of a timer since the store.
func (t *Set) overlay(key string) (*change, bool) {
	if c, ok := t.fresh.get(key); ok {
		return c, true
	}
	return t.taken.get(key)
}

// put makes a change the newest of its timer.
func (t *Set) put(key string, c change) {
	if t.fresh == nil {
		t.fresh = &Changes{}
	}
	t.fresh.all.Set(key, &c)
}

// Take hands the fresh timers to a batch.
func (t *Set) Take() *Changes {
	t.taken, t.fresh = t.fresh, nil
	return t.taken
}

// Flushed is told that what was taken is in the store.
func (t *Set) Flushed() { t.taken = nil }

// Put writes the timers in the order of their keys.
func (t *Set) Put(kvs *store.Batch, changes *Changes) {
	prefix := func(class store.Class) []byte {
		return store.AppendPrefix(kvs.Key(), t.rows.Shard, t.rows.Generation, class)
	}
	for key, c := range changes.from("") {
		if c.has && (c.gone() || c.stored != c.timer.Due) {
			kvs.Delete(append(store.AppendDue(prefix(store.ClassDue), c.stored), key...))
		}
		if c.storedRow && !c.row {
			kvs.Delete(append(prefix(store.ClassTimer), key...))
		}
		if c.gone() {
			continue
		}
		if c.row {
			kvs.Put(append(prefix(store.ClassTimer), key...), store.AppendDue(nil, c.timer.Due))
		}
		kvs.Put(append(store.AppendDue(prefix(store.ClassDue), c.timer.Due), key...), store.AppendTimer(nil, &c.timer))
	}
}
