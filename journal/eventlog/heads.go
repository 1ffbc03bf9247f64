package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
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
	first, last, pending *applied
	base, before         journal.Position
	snaps                *snapshots // nil while none is on its way to the store
	listed               bool       // in the Machine's dirty heads
	flying               bool       // in a batch on its way to the store
	cut                  bool       // Cut has moved, and no batch has taken that

	slot int  // in the clock
	used bool // since the hand passed
}

// applied is one record in the overlay. Once linked nothing of it changes but
// next, which a reader of first..last does not follow beyond last.
type applied struct {
	at   journal.Position
	seq  journal.Sequence // of the entity after the record
	raw  []byte
	head *head
	next *applied
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
	var err error
	if h.Head, h.exists, err = m.loadHead(sh.id, sh.generation, m.key, m.readAt); err != nil {
		return nil, err
	}
	h.before = h.Last
	m.mu.Lock()
	sh.heads[h.key] = h
	m.mu.Unlock()
	m.clock.add(h)
	return h, nil
}

// shrinkHeads lets heads go that are over the bound, between entries: while
// one is judged its heads must stay.
func (m *Machine) shrinkHeads() {
	if len(m.clock.heads) <= m.clock.max {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock.shrink(func(h *head) { delete(h.shard.heads, h.key) })
}
