package outbox

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Stage collects the changes to a box by the entry being checked. It is used by
// the applying goroutine.
type Stage struct {
	// Store contains the older changes of all boxes. Sums updates the checksums
	// of rows. Both must be set before use.
	Store kv.Viewer
	Sums  *rows.Writer

	box      *Box
	pairs    map[string]change
	order    []string // keys of pairs, in the order in which they were changed
	totals   journal.MessageTotals
	moved    bool // totals have changed
	clock    int64
	messages bool // the entry created messages
	key      []byte
	full     []byte
}

// Begin starts an entry for the shard of a box.
func (s *Stage) Begin(box *Box) {
	s.box = box
	s.Reset()
}

// Reset discards the changes.
func (s *Stage) Reset() {
	clear(s.pairs)
	s.order, s.moved, s.clock, s.messages = s.order[:0], false, 0, false
}

// HasMessages reports whether the entry sends messages.
func (s *Stage) HasMessages() bool { return s.messages }

// Clock returns the latest time of the entry's changes, 0 if there are none.
func (s *Stage) Clock() int64 { return s.clock }

// find returns a pair as changed so far by the entry being checked. The value
// is only valid until the next call.
func (s *Stage) find(key []byte) (value []byte, has bool, err error) {
	if c, ok := s.pairs[string(key)]; ok {
		return c.value, c.value != nil, nil
	}
	return s.findBelow(key)
}

func (s *Stage) findBelow(key []byte) (value []byte, has bool, err error) {
	for _, layer := range [...]*layer{&s.box.fresh, &s.box.taken} {
		if c, ok := layer.pairs[string(key)]; ok {
			return c.value, c.value != nil, nil
		}
	}
	view, err := s.Store.View()
	if err != nil {
		return nil, false, err
	}
	defer view.Close()
	full := append(store.AppendPrefix(s.full[:0], s.box.rows.Shard, s.box.rows.Generation, store.Class(key[0])), key[1:]...)
	s.full = full
	has, err = view.Get(full, func(body []byte) error {
		value = append([]byte{}, body...)
		return nil
	})
	if err == nil {
		l := s.box.rows.Lookup(&s.Sums.RowHasher, store.Class(key[0]), key[1:])
		err = l.CheckRow(&s.Sums.RowHasher, view, store.Class(key[0]), key[1:], value, has)
	}
	return value, has, err
}

// Set changes a pair; a nil value deletes it. old is the value before the
// change, nil if the pair does not exist.
func (s *Stage) Set(key, value, old []byte) {
	c, again := s.pairs[string(key)]
	if !again {
		if s.pairs == nil {
			s.pairs = make(map[string]change)
		}
		if c.below, c.had = old != nil, old != nil; c.had {
			c.was = s.Sums.Row(store.Class(key[0]), key[1:], old)
		}
		s.order = append(s.order, string(key))
	}
	c.value = value
	s.pairs[string(key)] = c
}

// count adds delta to a counter and returns its previous value. A counter that
// reaches 0 is deleted.
func (s *Stage) count(key []byte, delta int64) (before uint64, err error) {
	value, has, err := s.find(key)
	if err != nil {
		return 0, err
	}
	if has {
		if before, err = store.DecodeCount(value); err != nil {
			return 0, err
		}
	}
	after := before + uint64(delta)
	if after == 0 {
		s.Set(key, nil, value)
		return before, nil
	}
	s.Set(key, store.AppendCount(make([]byte, 0, 8), after), value)
	return before, nil
}

// changeTotals returns the shard's totals for modification.
func (s *Stage) changeTotals() *journal.MessageTotals {
	if !s.moved {
		s.totals, s.moved = s.box.totals, true
	}
	return &s.totals
}

// Key returns the start of a key of a class. It is valid until the next call.
func (s *Stage) Key(class store.Class) []byte {
	s.key = append(s.key[:0], byte(class))
	return s.key
}

// pairBytes estimates the memory overhead of a pair.
const pairBytes = 96

// Commit makes the staged changes visible and returns their size. The lock must
// be held.
func (s *Stage) Commit() (bytes int) {
	if len(s.order) == 0 {
		return 0
	}
	if s.moved {
		s.Set(s.Key(store.ClassCount), store.AppendTotals(nil, &s.totals), []byte{})
		s.box.totals = s.totals
	}
	fresh := &s.box.fresh
	if fresh.pairs == nil {
		fresh.pairs = make(map[string]change)
	}
	for _, key := range s.order {
		c := s.pairs[key]
		s.Sums.Pair(s.box.rows, key, c.was, c.had, c.value)
		old, again := fresh.pairs[key]
		if again {
			c.below = old.below
		}
		if store.Class(key[0]) == store.ClassRun {
			fresh.runs = append(fresh.runs, key)
		}
		if c.value == nil && !c.below {
			delete(fresh.pairs, key)
			continue
		}
		fresh.pairs[key] = c
		bytes += len(key) + len(c.value) + pairBytes
		if c.value == nil || again {
			continue
		}
		switch store.Class(key[0]) {
		case store.ClassOutbox:
			fresh.outbox = append(fresh.outbox, key)
		case store.ClassDeadLetter:
			fresh.deadLetters = append(fresh.deadLetters, key)
		}
	}
	return bytes
}
