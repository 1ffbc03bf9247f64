package timers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Sweep removes up to limit timers that an entity has of earlier lives, the
// first by their keys, and returns how many. Each replica removes the same ones
// at the same entry, whatever of them is in its store: a batch may have taken
// none, some or all. The lock is taken for the change of what is known, by
// lock, and not for reading.
//
// It costs limit steps, and what the store holds of removed keys after
// owed.From: those of one slice, or after a start those of all slices before.
func (s *Stage) Sweep(e Entity, owed *rows.Owed, limit int, lock func() (unlock func())) (bytes int, err error) {
	places, err := s.left(e, owed.From, limit)
	if err != nil {
		return 0, err
	}
	if len(places) < limit && len(places) < int(e.Head.Left) {
		return 0, e.Set.rows.Damaged(&store.DamageError{Where: "the timers of an entity",
			What:   fmt.Sprintf("%d of earlier lives are there, its head counts %d", len(places), e.Head.Left),
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

// left finds the first of an entity's timers of earlier lives, at most limit:
// those of its second life and later ones come first, then those of its first.
func (s *Stage) left(e Entity, from string, limit int) (places []Place, err error) {
	view, err := s.View()
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
			return m.stored(string(key[len(class):]), body)
		})
		if err == nil {
			err = m.overlay("")
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

// merge goes through the timers of a range of an entity's keys in order: what
// the store has, and what has changed since.
type merge struct {
	*Stage
	e        Entity
	from, to string // to empty: to the entity's last
	limit    int
	places   []Place
}

func (m *merge) stored(key string, body []byte) error {
	if m.to != "" && key >= m.to {
		return store.ErrStop
	}
	if err := m.overlay(key); err != nil {
		return err
	}
	if _, newer := m.e.Set.overlay(key); newer {
		return nil
	}
	due, err := store.DecodeDue(body)
	if err != nil {
		return err
	}
	return m.add(Place{due, key})
}

// overlay adds what has changed before a key or at it, empty: to the end.
func (m *merge) overlay(upTo string) error {
	for {
		key, c, ok := m.nextChange(upTo)
		if !ok {
			return nil
		}
		m.from = key + "\x00"
		if c.gone() {
			continue
		}
		if err := m.add(Place{c.timer.Due, key}); err != nil {
			return err
		}
	}
}

// nextChange is the first of the overlay's from m.from on.
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
