package eventlog

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// openGenerations finds what the store has of each shard's present generation.
// Other generations are deleted in the background: an applied mark in the
// present one says that it is whole, so no other can be needed.
func (m *Machine) openGenerations(view kv.View) error {
	generations, err := view.Generations()
	if err != nil {
		return err
	}
	known := make(map[sharding.ShardID]bool, len(m.opts.Generations))
	for i := range m.opts.Generations {
		l := &m.opts.Generations[i]
		known[l.Shard] = true
		m.openGeneration(l)
	}
	for i := range generations {
		// The last that is marked wins.
		if l := &generations[i]; l.Marked && !known[l.Shard] {
			m.openGeneration(&statefile.Generation{Shard: l.Shard, Generation: l.Generation})
		}
	}
	for i := range generations {
		l := &generations[i]
		sh := m.shard(l.Shard)
		switch {
		case l.Generation != sh.generation:
			m.background.garbage = append(m.background.garbage, garbage{shard: l.Shard, generation: l.Generation})
		case l.Marked:
			sh.applied, sh.installing = l.Applied, nil
			if err := m.openRows(sh, view); err != nil {
				return err
			}
			sh.flushed = sh.applied
			m.durable.Set(l.Shard, l.Applied.Index)
		case sh.installing == nil:
			return store.MissingMark(l.Shard)
		}
	}
	return m.openInstalls()
}

// openRows reads what is kept in memory of a shard. A data shard whose rows are
// not all there stops on this node; without the metadata there is no node.
func (m *Machine) openRows(sh *shard, view kv.View) error {
	err := sh.rows.Open(view, &sh.applied)
	switch {
	case err == nil:
	case !errors.Is(err, journal.ErrDamaged) || sh.id == sharding.MetaShard:
		return err
	default:
		m.suspects.add(sh, err)
	}
	if err := errors.Join(sh.outbox.Open(view), sh.openImport(view)); err != nil {
		return err
	}
	if err := sh.outbox.Check(); err != nil {
		m.suspects.add(sh, err)
	}
	return nil
}

func (m *Machine) openGeneration(l *statefile.Generation) {
	sh := m.shard(l.Shard)
	sh.generation, sh.rows.Generation = l.Generation, l.Generation
	m.durable.Begin(l.Shard, l.Generation)
	if l.Install != nil {
		sh.installing = &install{Install: *l.Install, shard: sh}
	}
}

// Drop ends the shard's generation on this node: its state is gone at once for
// all who read, and deleted in the background. The next generation is empty.
func (m *Machine) Drop(id sharding.ShardID, next uint32) {
	m.replace(id, next)
	if id == sharding.MetaShard && m.opts.Metadata != nil && m.failed == nil {
		m.failed = m.replaceMetadata(0, func(func(key, value []byte) error) error { return nil })
	}
}

// replace puts an empty generation of the shard in the place of the one there
// is.
func (m *Machine) replace(id sharding.ShardID, generation uint32) *shard {
	old := m.shard(id)
	sh := m.newShard(id, generation)
	m.mu.Lock()
	m.shards[id] = sh
	old.replaced = true
	for _, h := range old.heads {
		h.pending, h.first, h.last, h.snaps = nil, nil, nil, nil
		h.listed, h.flying = false, false
	}
	m.dirty = keep(m.dirty, func(h *head) bool { return h.shard != old })
	m.moved = keep(m.moved, func(s *shard) bool { return s != old })
	if id == sharding.MetaShard {
		m.meta = nil
	}
	m.mu.Unlock()
	m.background.ended = true
	m.durable.Begin(id, generation)
	if old.installing != nil {
		m.background.abandon(old.installing)
	}
	if old.generation != generation {
		m.background.garbage = append(m.background.garbage, garbage{shard: id, generation: old.generation, after: m.next})
	}
	m.subs.WakeShard(id)
	return sh
}

// keep is slices.DeleteFunc the other way round, and forgets the rest.
func keep[T any](all []*T, wanted func(*T) bool) []*T {
	n := 0
	for _, v := range all {
		if wanted(v) {
			all[n] = v
			n++
		}
	}
	clear(all[n:])
	return all[:n]
}

func (m *Machine) replaceMetadata(index uint64, restore func(put func(key, value []byte) error) error) error {
	if err := m.opts.Metadata.Replace(index, restore); err != nil {
		return fmt.Errorf("replace metadata: %w", err)
	}
	return nil
}
