package timers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Sweep removes up to limit timers of an entity's earlier incarnations, in key
// order, and returns the size of the changes. Each replica removes the same
// timers at the same entry, no matter which of them are in its store already.
// Sweep calls lock to acquire the lock for changing memory; it reads without
// the lock.
//
// Sweep costs limit steps, plus skipping the deletion markers in the store
// after owed.From. These markers are the markers of one slice or, after a
// restart, of all earlier slices.
func (s *Stage) Sweep(e Entity, owed *rows.Owed, limit int, lock func() (unlock func())) (bytes int, err error) {
	places, err := s.earlierTimers(e, owed.From, limit)
	if err != nil {
		return 0, err
	}
	if len(places) < limit && len(places) < int(e.Head.Left) {
		return 0, e.Set.rows.ReportDamage(&store.DamageError{Where: "the timers of an entity",
			What:   fmt.Sprintf("found %d of earlier incarnations, but the entity row counts %d", len(places), e.Head.Left),
			Action: rows.ActionReplace})
	}
	defer lock()()
	for _, p := range places {
		c := change{stored: p.Due, has: true, storedRow: true}
		if in, ok := e.Set.fresh.get(p.Key); ok {
			c = *in
			c.timer, c.row = store.Timer{}, false
		}
		e.Set.put(p.Key, c)
		s.Sums.Timer(e.Set.rows, p.Key, rows.TimerOf(p.Due, true, false), rows.TimerOf(0, false, false))
	}
	e.Head.Left -= uint32(len(places))
	if len(places) > 0 {
		owed.From = places[len(places)-1].Key + "\x00"
	}
	e.Set.rows.Owe(e.Key, e.Head)
	return len(places) * stepBytes, nil
}

// earlierTimers returns up to limit timers of an entity's earlier incarnations:
// timers of the second and later incarnations first, because their keys sort
// first, then timers of the first incarnation.
func (s *Stage) earlierTimers(e Entity, from string, limit int) (places []Place, err error) {
	view, err := s.Store.View()
	if err != nil {
		return nil, err
	}
	defer view.Close()
	limit = min(limit, int(e.Head.Left))
	class := store.AppendPrefix(nil, e.Set.rows.Shard, e.Set.rows.Generation, store.ClassTimer)
	for _, part := range [...]struct{ from, to string }{{e.Key + "\x00", e.keyOf(e.Head.Life)}, {e.Key + "\x01", ""}} {
		if part.to != "" && from >= part.to {
			continue
		}
		m := merge{Stage: s, e: e, from: max(from, part.from), to: part.to, limit: limit, places: places}
		err := view.Scan(append(class[:len(class):len(class)], e.Key...), append(class[:len(class):len(class)], m.from...), func(key, body []byte) error {
			return m.addStored(string(key[len(class):]), body)
		})
		if err == nil {
			err = m.addChanges("")
		}
		if places = m.places; err != nil && !errors.Is(err, store.ErrStop) {
			return nil, err
		}
		if len(places) == limit {
			break
		}
	}
	return places, nil
}

// merge iterates in order over the timers in a range of an entity's keys. It
// merges the timers in the store with later changes.
type merge struct {
	*Stage
	e        Entity
	from, to string // if to is empty, the range extends to the entity's last timer
	limit    int
	places   []Place
}

func (m *merge) addStored(key string, body []byte) error {
	if m.to != "" && key >= m.to {
		return store.ErrStop
	}
	if err := m.addChanges(key); err != nil {
		return err
	}
	if _, newer := m.e.Set.findChange(key); newer {
		return nil
	}
	due, err := store.DecodeDue(body)
	if err != nil {
		return err
	}
	return m.add(Place{due, key})
}

// addChanges adds changes up to a key, inclusive, or all if upTo is empty.
func (m *merge) addChanges(upTo string) error {
	for {
		key, c, ok := m.nextChange(upTo)
		if !ok {
			return nil
		}
		m.from = key + "\x00"
		if c.isCancelled() {
			continue
		}
		if err := m.add(Place{c.timer.Due, key}); err != nil {
			return err
		}
	}
}

// nextChange returns the first change in the memtable from m.from on.
func (m *merge) nextChange(upTo string) (key string, c *change, ok bool) {
	for _, layer := range [...]*Changes{m.e.Set.fresh, m.e.Set.taken} {
		for k, in := range layer.from(m.from) {
			if (upTo == "" || k <= upTo) && (m.to == "" || k < m.to) && strings.HasPrefix(k, m.e.Key) && (!ok || k < key) {
				key, c, ok = k, in, true
			}
			break
		}
	}
	return key, c, ok
}

func (m *merge) add(p Place) error {
	if len(m.places) == m.limit {
		return store.ErrStop
	}
	m.places = append(m.places, p)
	return nil
}
