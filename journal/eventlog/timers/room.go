package timers

import (
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// TimerRoom returns the number of an entity's timers, and how many of the given
// names are not names of these timers. It does no I/O, so executors may call
// it. If the entity's row is not in memory, counts below rows.manyTimers are
// reported as 0, and timers in the row, at most four, count as new.
func (l Lists) TimerRoom(id sharding.ShardID, e sharding.EntityID, names [][]byte) (has, added int) {
	defer l.Of.Unlock(false)
	set, _ := l.Of.Timers(id, false)
	if set == nil {
		return 0, len(names)
	}
	entity := string(store.AppendEntityID(nil, e))
	h, cached := l.Of.Head(id, entity)
	if !cached {
		h, _ = set.rows.ManyTimers(entity)
	}
	var hasher store.RowHasher
	seen := make(map[string]struct{}, len(names))
	for _, name := range names {
		if _, again := seen[string(name)]; again {
			continue
		}
		seen[string(name)] = struct{}{}
		if !set.has(&hasher, entity, &h, string(name)) {
			added++
		}
	}
	return int(h.Timers), added
}

// has reports whether a timer is set, as far as can be determined from memory.
func (t *Set) has(hasher *store.RowHasher, entity string, h *store.Head, name string) bool {
	if _, ok := h.Set.Find(name); ok || !h.TimerRows() {
		return ok
	}
	key := append(store.AppendLife([]byte(entity), h.Life), name...)
	if c, ok := t.findChange(string(key)); ok {
		return !c.isCancelled()
	}
	l := t.rows.Lookup(hasher, store.ClassTimer, key)
	return !l.IsAbsent()
}
