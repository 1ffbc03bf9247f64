// Package timers holds the timers of a shard's entities that are not in the
// store yet, and reads them and the stored timers as one list:
//
//	Stage ─Commit─▶ fresh ─Take─▶ taken ─MarkFlushed─▶ store
//
// Entries are checked in a Stage. An entity's row contains its first few
// timers; further timers have a row each. The package has no goroutine and no
// lock of its own.
package timers

import (
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/sorted"
	"github.com/hostd/hostd/journal/store"
)

// change is the effect of an entry on one timer: it is set or deleted. It is
// never modified once it is in a layer.
type change struct {
	timer store.Timer // Command is empty if the timer is deleted
	row   bool        // the timer has a row of class store.ClassTimer, because the entity's row has no room for it
	// has is set if the layer below has the timer. stored is then the timer's due
	// time in that layer, and storedRow is set if the timer has a row of class
	// store.ClassTimer there.
	stored    int64
	has       bool
	storedRow bool
}

func (t *change) isCancelled() bool { return len(t.timer.Command) == 0 }

// Set has the timers of a shard that are not in the store yet, keyed by entity,
// incarnation and name: changes that are in no batch, and changes of the batch in
// flight. Only the applying goroutine changes them, under the lock that readers
// hold. The floor belongs to the readers.
type Set struct {
	rows         *rows.Known
	fresh, taken *Changes // nil if there are none

	// If floor is known, no timer in the store is due earlier. Scans start there,
	// because there may be many deletion markers before it. lowest is the earliest
	// due time that was set since the latest reader started; only that reader may
	// raise the floor.
	floor   int64
	known   bool
	lowest  int64
	readers uint64 // number of readers that ever started
}

// NewSet returns an empty set for a shard with these rows.
func NewSet(known *rows.Known) *Set { return &Set{rows: known} }

// Changes are changes of timers on their way to the store, by key.
type Changes struct{ all sorted.Map[string, *change] }

// get returns the change of a timer. c may be nil.
func (c *Changes) get(key string) (*change, bool) {
	if c == nil {
		return nil, false
	}
	return c.all.Get(key)
}

// from yields the changes from a key on. c may be nil.
func (c *Changes) from(key string) func(yield func(string, *change) bool) {
	if c == nil {
		return func(func(string, *change) bool) {}
	}
	return c.all.From(key)
}

// findChange returns the latest change of a timer that is not in the store yet.
func (t *Set) findChange(key string) (*change, bool) {
	if c, ok := t.fresh.get(key); ok {
		return c, true
	}
	return t.taken.get(key)
}

// put makes a change the latest of its timer.
func (t *Set) put(key string, c change) {
	if t.fresh == nil {
		t.fresh = &Changes{}
	}
	t.fresh.all.Set(key, &c)
}

// Take passes the fresh changes to a batch.
func (t *Set) Take() *Changes {
	t.taken, t.fresh = t.fresh, nil
	return t.taken
}

// MarkFlushed must be called when the taken changes are in the store.
func (t *Set) MarkFlushed() { t.taken = nil }

// Put writes the timers in key order.
func (t *Set) Put(kvs *store.Batch, changes *Changes) {
	prefix := func(class store.Class) []byte {
		return store.AppendPrefix(kvs.Key(), t.rows.Shard, t.rows.Generation, class)
	}
	for key, c := range changes.from("") {
		if c.has && (c.isCancelled() || c.stored != c.timer.Due) {
			kvs.Delete(append(store.AppendDue(prefix(store.ClassDue), c.stored), key...))
		}
		if c.storedRow && !c.row {
			kvs.Delete(append(prefix(store.ClassTimer), key...))
		}
		if c.isCancelled() {
			continue
		}
		if c.row {
			kvs.Put(append(prefix(store.ClassTimer), key...), store.AppendDue(nil, c.timer.Due))
		}
		kvs.Put(append(store.AppendDue(prefix(store.ClassDue), c.timer.Due), key...), store.AppendTimer(nil, &c.timer))
	}
}
