package entity

import (
	"slices"

	"github.com/hostd/hostd/host/entity/window"
)

// The idempotency windows of entities in memory are on the heap: up to 10,000
// ids and 4 MiB of replies for each entity. They are not guest memory, so
// they have a limit of their own. Above the limit, entities are evicted: of a
// few entities with large windows, the least recently used one. A later load
// costs little, because a snapshot has a filter of ids instead of the window,
// and the window is read only for an id that the filter may contain.
//
// Windows of up to 8 commands and 1 KiB are not counted. They are part of the
// entity, and most entities have no larger window.

// windows tracks the entities with large windows.
type windows struct {
	list  []weighedWindow
	at    map[*entity]int // index in list by entity
	bytes int64           // bytes of all windows in list
	hand  int             // index in list at which the next victim is searched
}

type weighedWindow struct {
	e     *entity
	bytes int64
}

const (
	// windowsCompared is the number of entities that are compared to find a
	// victim.
	windowsCompared = 8
	// windowsShed bounds the entities that are evicted in one tick.
	windowsShed = 64
)

// note adds a command to the entity's window and counts the window's growth.
func (b *base) note(e *entity, r window.Command) {
	e.note(r)
	b.weigh(e)
}

// weigh counts the growth of the entity's window.
func (b *base) weigh(e *entity) {
	grown := e.seen.Growth()
	if grown == 0 {
		return
	}
	w := &b.windows
	i, known := w.at[e]
	if !known {
		if w.at == nil {
			w.at = map[*entity]int{}
		}
		i = len(w.list)
		w.list, w.at[e] = append(w.list, weighedWindow{e: e}), i
	}
	w.list[i].bytes += grown
	w.bytes += grown
}

// unweigh removes an entity that loses its window.
func (b *base) unweigh(e *entity) {
	w := &b.windows
	i, known := w.at[e]
	if !known {
		return
	}
	w.bytes -= w.list[i].bytes
	last := len(w.list) - 1
	w.list[i] = w.list[last]
	w.at[w.list[i].e] = i
	w.list[last] = weighedWindow{}
	w.list = w.list[:last]
	delete(w.at, e)
	if len(w.list) == 0 {
		*w = windows{} // release the map, because a map never shrinks
	} else if cap(w.list) > 1024 && len(w.list) < cap(w.list)/4 {
		w.list = slices.Clip(slices.Clone(w.list))
	}
}

// shedWindows evicts entities until the remaining windows are within the limit.
// It examines a bounded number of them, and the next tick continues.
func (m *residents) shedWindows() {
	for n := 0; n < windowsShed && m.windows.bytes > m.opts.WindowBytes; n++ {
		var victim *entity
		for range min(windowsCompared, len(m.windows.list)) {
			m.windows.hand = (m.windows.hand + 1) % len(m.windows.list)
			e := m.windows.list[m.windows.hand].e
			if e.isIdle() && (victim == nil || e.touched.Since(m.now) > victim.touched.Since(m.now)) {
				victim = e
			}
		}
		if victim == nil || m.exec.mustCheckFirst(victim, false) {
			continue
		}
		m.stats.Shed++
		victim.stopped = true
		m.evict(victim)
		m.exec.revive(victim)
	}
}
