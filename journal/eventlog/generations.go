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

// openGenerations finds the current generation of each shard in the store. All
// other generations are deleted in the background: an applied record in the
// current generation shows that it is complete, so no other generation can be
// needed.
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
		// The last generation with an applied record wins.
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

// openRows reads the in-memory state of a shard. A data shard with missing rows
// stops on this node. Without the metadata shard the node cannot run at all.
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

// Drop ends the shard's generation on this node: readers no longer see its
// state, and the data is deleted in the background. The next generation is
// empty.
func (m *Machine) Drop(id sharding.ShardID, next uint32) {
	m.replace(id, next)
	if id == sharding.MetaShard && m.opts.Metadata != nil && m.failed == nil {
		m.failed = m.replaceMetadata(0, func(func(key, value []byte) error) error { return nil })
	}
}

// replace replaces the shard's current generation by an empty generation.
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
	m.dirty = keep(m.dirty, func(h *entityRow) bool { return h.shard != old })
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

// keep keeps the elements for which wanted is true, and clears the rest of the
// slice.
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
