package entity

import (
	"slices"

	"github.com/hostd/hostd/host/entity/window"
)

// What entities remember of their commands is on the heap of the process: up to
// 10,000 ids and 4 MiB of replies each, while the entity is in memory. It is
// none of the memory of guests, so it has a bound of its own. Above it entities
// leave memory, of some with large windows the one that was asked for longest
// ago. That costs them little: one that is loaded from a snapshot has a filter
// of ids in the place of the window, which is read only for an id that may be
// in it.
//
// Windows of up to 8 commands and 1 KiB are not counted. They lie in the record
// of the entity, and most entities have no others.

// windows are the entities that have large windows.
type windows struct {
	list  []weighed
	at    map[*entity]int // in list
	bytes int64           // of all of them
	hand  int             // where the next that is to leave is looked for
}

type weighed struct {
	e     *entity
	bytes int64
}

const (
	// windowsCompared is among how many the one that leaves is chosen.
	windowsCompared = 8
	// windowsShed bounds the entities that leave in one tick.
	windowsShed = 64
)

// note puts a command into the entity's window.
func (b *base) note(e *entity, r window.Command) {
	e.note(r)
	b.weigh(e)
}

// weigh counts what the window of an entity has grown by.
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
		w.list, w.at[e] = append(w.list, weighed{e: e}), i
	}
	w.list[i].bytes += grown
	w.bytes += grown
}

// unweigh takes an entity out whose window goes.
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
	w.list[last] = weighed{}
	w.list = w.list[:last]
	delete(w.at, e)
	if len(w.list) == 0 {
		*w = windows{} // a map keeps what it has grown to
	} else if cap(w.list) > 1024 && len(w.list) < cap(w.list)/4 {
		w.list = slices.Clip(slices.Clone(w.list))
	}
}

// shedWindows lets entities leave until the windows of the others are within
// their bound, or some have been looked at; then the next tick continues.
func (m *residents) shedWindows() {
	for n := 0; n < windowsShed && m.windows.bytes > m.opts.WindowBytes; n++ {
		var victim *entity
		for range min(windowsCompared, len(m.windows.list)) {
			m.windows.hand = (m.windows.hand + 1) % len(m.windows.list)
			e := m.windows.list[m.windows.hand].e
			if e.restful() && (victim == nil || e.touched.Since(m.now) > victim.touched.Since(m.now)) {
				victim = e
			}
		}
		if victim == nil || m.lane.checksFirst(victim, false) {
			continue
		}
		m.stats.Shed++
		victim.stopped = true
		m.evict(victim)
		m.lane.revive(victim)
	}
}
