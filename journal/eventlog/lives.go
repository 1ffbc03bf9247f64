package eventlog

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// openLives finds what the store has of each shard's present life. Other
// generations are deleted in the background: an applied mark in the present
// one says that it is whole, so no other can be needed.
func (m *Machine) openLives(view View) error {
	lives, err := view.Lives()
	if err != nil {
		return err
	}
	known := make(map[sharding.ShardID]bool, len(m.opts.Lives))
	for i := range m.opts.Lives {
		l := &m.opts.Lives[i]
		known[l.Shard] = true
		m.openLife(l)
	}
	for i := range lives {
		// The last that is marked wins.
		if l := &lives[i]; l.Marked && !known[l.Shard] {
			m.openLife(&statefile.Life{Shard: l.Shard, Generation: l.Generation})
		}
	}
	for i := range lives {
		l := &lives[i]
		sh := m.shard(l.Shard)
		switch {
		case l.Generation != sh.generation:
			m.background.garbage = append(m.background.garbage, garbage{shard: l.Shard, generation: l.Generation})
		case l.Marked:
			sh.applied, sh.flushed, sh.installing = l.Applied, l.Applied, nil
			if err := errors.Join(sh.openPost(view), sh.openImport(view)); err != nil {
				return err
			}
			m.durable.set(l.Shard, l.Applied.Index)
		case sh.installing == nil:
			return store.MissingMark(l.Shard)
		}
	}
	return m.openInstalls()
}

func (m *Machine) openLife(l *statefile.Life) {
	sh := m.shard(l.Shard)
	sh.generation = l.Generation
	m.durable.begin(l.Shard, l.Generation)
	if l.Install != nil {
		sh.installing = &install{Install: *l.Install, shard: sh}
	}
}

// Drop ends the shard's life on this node: its state is gone at once for all
// who read, and deleted in the background. The next generation is empty.
func (m *Machine) Drop(id sharding.ShardID, next uint32) {
	m.replace(id, next)
	if id == sharding.MetaShard && m.opts.Metadata != nil && m.failed == nil {
		m.failed = m.replaceMetadata(0, func(func(key, value []byte) error) error { return nil })
	}
}

// replace puts an empty life of the shard in the place of the one there is.
func (m *Machine) replace(id sharding.ShardID, generation uint32) *shard {
	old := m.shard(id)
	if keysOfOldLives {
		generation = old.generation
	}
	sh := &shard{id: id, generation: generation, heads: make(map[string]*head)}
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
	m.durable.begin(id, generation)
	if old.installing != nil {
		m.background.abandon(old.installing)
	}
	if old.generation != generation {
		m.background.garbage = append(m.background.garbage, garbage{shard: id, generation: old.generation, after: m.next})
	}
	m.subs.wakeShard(id)
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
	r, ok := m.opts.Metadata.(MetadataReplacer)
	if !ok {
		return fmt.Errorf("event log: the metadata machine cannot take another state")
	}
	if err := r.Replace(index, restore); err != nil {
		return fmt.Errorf("replace metadata: %w", err)
	}
	return nil
}
