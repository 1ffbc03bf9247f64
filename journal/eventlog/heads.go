package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// head is an entity's latest state, and its part of the overlay.
type head struct {
	shard  *shard
	key    string // the entity as keys hold it
	exists bool
	store.Head

	// While an entry is judged: the state after its records so far, if judged
	// is the number of that entry.
	judged uint64
	seq    journal.Sequence
	hash   journal.Hash

	// The overlay: first..last are in no flushed batch, pending..last in none
	// at all; base is the position of the record before first, before that of
	// the one before pending.
	first, last, pending *history.Record
	base, before         journal.Position
	snaps                *snapshots // nil while none is on its way to the store
	listed               bool       // in the Machine's dirty heads
	flying               bool       // in a batch on its way to the store
	cut                  bool       // Cut has moved, and no batch has taken that

	// The row as the shard's sums have it; summed if they do.
	row    store.RowHash
	summed bool

	slot int  // in the clock
	used bool // since the hand passed
}

// timers is the head as the judge of its timers has it.
func (h *head) timers() timers.Entity {
	return timers.Entity{Key: h.key, Head: &h.Head, Set: h.shard.timers}
}

func (h *head) pinned() bool { return h.listed || h.flying || h.first != nil || h.snaps != nil }

// headClock chooses which head leaves the memory: second chance, by a hand
// that goes round.
type headClock struct {
	heads []*head
	hand  int
	max   int
}

func (c *headClock) add(h *head) {
	h.slot, h.used = len(c.heads), true
	c.heads = append(c.heads, h)
}

// shrink takes out heads until max are left or all are pinned, and calls drop
// for each.
func (c *headClock) shrink(drop func(*head)) {
	for looked := 0; len(c.heads) > c.max && looked < 2*len(c.heads); looked++ {
		if c.hand >= len(c.heads) {
			c.hand = 0
		}
		h := c.heads[c.hand]
		if h.pinned() || h.used {
			h.used = false
			c.hand++
			continue
		}
		end := len(c.heads) - 1
		c.heads[c.hand] = c.heads[end]
		c.heads[c.hand].slot = c.hand
		c.heads[end] = nil
		c.heads = c.heads[:end]
		drop(h)
	}
}

// head returns the entity's head, from memory or the store. An entity that
// does not exist has one too.
func (m *Machine) head(sh *shard, typ, id []byte) (*head, error) {
	m.key = store.AppendEntity(m.key[:0], typ, id)
	if h := sh.heads[string(m.key)]; h != nil {
		h.used = true
		return h, nil
	}
	h := &head{shard: sh, key: string(m.key)}
	if err := m.loadHead(h); err != nil {
		return nil, err
	}
	h.before = h.Last
	m.mu.Lock()
	sh.heads[h.key] = h
	m.mu.Unlock()
	m.clock.add(h)
	return h, nil
}

// loadHead reads a head from the store, unless it is known not to be there.
func (m *Machine) loadHead(h *head) error {
	l := h.shard.rows.Lookup(&m.sums.RowHasher, store.ClassEntity, m.key)
	if l.Absent() {
		return nil
	}
	view, err := m.view()
	if err != nil {
		return err
	}
	defer view.Close()
	if h.Head, h.exists, err = l.ReadHead(&m.sums.RowHasher, view, m.key); err != nil {
		return err
	}
	if h.summed = h.exists; h.exists {
		h.row = m.sums.Head(h.key, &h.Head)
	}
	return nil
}

// shrinkHeads lets heads go that are over the bound, between entries: while
// one is judged its heads must stay.
func (m *Machine) shrinkHeads() {
	if len(m.clock.heads) <= m.clock.max {
		return
	}
	m.lockLong()
	defer m.unlockLong()
	m.clock.shrink(func(h *head) { delete(h.shard.heads, h.key) })
}

// sums keep what is known of rows as they change.
type sums struct {
	rows.Writer
	stale []staleHead // scratch
}

// staleHead is a head whose sum is behind it.
type staleHead struct {
	head  *head
	place uint64
	hash  store.RowHash
}

// sumHeads brings the sums of heads up to what is applied: of one shard, or of
// all for nil. What an entity's records do to its head in between costs nothing.
func (m *Machine) sumHeads(only *shard) {
	all := m.sums.stale[:0]
	for _, h := range m.dirty {
		if only != nil && h.shard != only || !h.exists {
			continue
		}
		if hash := m.sums.Head(h.key, &h.Head); !h.summed || hash != h.row {
			all = append(all, staleHead{h, m.sums.Place(h.shard.rows, store.ClassEntity, h.key), hash})
		}
	}
	m.lockLong()
	defer m.unlockLong()
	for i := range all {
		s := &all[i]
		h := s.head
		h.shard.rows.Replace(store.SumHeads, s.place, h.row, h.summed, s.hash, true)
		h.row, h.summed = s.hash, true
		s.head = nil
	}
	m.sums.stale = all
}

// Sums are the sums of the shard's rows, as of Applied. It is for the applying
// goroutine.
func (m *Machine) Sums(id sharding.ShardID) store.Sums {
	sh := m.shard(id)
	m.sumHeads(sh)
	return *sh.rows.Sums()
}
