package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// entityRow is an entity's latest state and its part of the memtable.
type entityRow struct {
	shard  *shard
	key    string // encoded as in keys
	exists bool
	store.Head

	// While an entry is being checked, these fields hold the state after the
	// entry's records that were checked so far. They are valid if checkedBy is the
	// number of that entry.
	checkedBy uint64
	seq       journal.Sequence
	hash      journal.Hash
	run       store.HeadRun

	// The entity's records in the memtable: first..last are in no flushed batch,
	// and pending..last are in no batch at all. base is the position of the record
	// that precedes first, and before is the position of the record that precedes
	// pending.
	first, last, pending *history.Record
	base, before         journal.Position
	snaps                *snapshots // snapshots on their way to the store; nil if there are none
	listed               bool       // in Machine.dirty
	flying               bool       // in the batch in flight
	cut                  bool       // Head.Cut has changed since the last batch

	// row is the hash of the row as included in the shard's checksums. It is valid
	// if summed is true.
	row    store.RowHash
	summed bool

	slot int  // index in rowClock
	used bool // used since the clock's hand last passed
}

// timers returns the entity as the timer stage sees it.
func (h *entityRow) timers() timers.Entity {
	return timers.Entity{Key: h.key, Head: &h.Head, Set: h.shard.timers}
}

// beginCheck prepares the row for the check of an entry.
func (h *entityRow) beginCheck(entry uint64) {
	h.checkedBy, h.seq, h.hash, h.run = entry, h.Sequence, h.Hash, h.Run
}

func (h *entityRow) isPinned() bool { return h.listed || h.flying || h.first != nil || h.snaps != nil }

// rowClock chooses which entity rows to evict from memory, by second chance
// (the CLOCK algorithm).
type rowClock struct {
	heads []*entityRow
	hand  int
	max   int
}

func (c *rowClock) add(h *entityRow) {
	h.slot, h.used = len(c.heads), true
	c.heads = append(c.heads, h)
}

// shrink removes rows until max are left or all are pinned, and calls drop for
// each.
func (c *rowClock) shrink(drop func(*entityRow)) {
	for looked := 0; len(c.heads) > c.max && looked < 2*len(c.heads); looked++ {
		if c.hand >= len(c.heads) {
			c.hand = 0
		}
		h := c.heads[c.hand]
		if h.isPinned() || h.used {
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

// row returns the entity's row from memory or the store. Entities that do not
// exist get a row too.
func (m *Machine) row(sh *shard, typ, id []byte) (*entityRow, error) {
	m.key = store.AppendEntity(m.key[:0], typ, id)
	if h := sh.heads[string(m.key)]; h != nil {
		h.used = true
		return h, nil
	}
	h := &entityRow{shard: sh, key: string(m.key)}
	if err := m.readRow(h); err != nil {
		return nil, err
	}
	h.before = h.Last
	m.mu.Lock()
	sh.heads[h.key] = h
	m.mu.Unlock()
	m.clock.add(h)
	return h, nil
}

// readRow reads a row from the store, unless the row is known not to exist.
func (m *Machine) readRow(h *entityRow) error {
	l := h.shard.rows.Lookup(&m.checksums.RowHasher, store.ClassEntity, m.key)
	if l.IsAbsent() {
		return nil
	}
	view, err := m.view()
	if err != nil {
		return err
	}
	defer view.Close()
	if h.Head, h.exists, err = l.ReadHead(&m.checksums.RowHasher, view, m.key); err != nil {
		return err
	}
	if h.summed = h.exists; h.exists {
		h.row = m.checksums.Head(h.key, &h.Head)
	}
	return nil
}

// evictRows evicts rows above the limit. It runs between entries, because rows
// of the entry being checked must stay in memory.
func (m *Machine) evictRows() {
	if len(m.clock.heads) <= m.clock.max {
		return
	}
	m.lockLong()
	defer m.unlockLong()
	m.clock.shrink(func(h *entityRow) { delete(h.shard.heads, h.key) })
}

// checksums keeps the checksums of rows up to date as rows change.
type checksums struct {
	rows.Writer
	stale []staleRow // scratch
}

// staleRow is a row whose checksum is out of date.
type staleRow struct {
	head  *entityRow
	place uint64
	hash  store.RowHash
}

// updateChecksums brings the checksums of entity rows up to date, for one shard
// or, if only is nil, for all. Doing this per batch instead of per record makes
// intermediate changes free.
func (m *Machine) updateChecksums(only *shard) {
	all := m.checksums.stale[:0]
	for _, h := range m.dirty {
		if only != nil && h.shard != only || !h.exists {
			continue
		}
		if hash := m.checksums.Head(h.key, &h.Head); !h.summed || hash != h.row {
			all = append(all, staleRow{h, m.checksums.Place(h.shard.rows, store.ClassEntity, h.key), hash})
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
	m.checksums.stale = all
}

// Sums returns the checksums of the shard's rows at the applied index. It may
// only be called by the applying goroutine.
func (m *Machine) Sums(id sharding.ShardID) store.Sums {
	sh := m.shard(id)
	m.updateChecksums(sh)
	return *sh.rows.Sums()
}
