package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// snapshots is the part of an entity's overlay that is about snapshots.
type snapshots struct {
	fresh []history.Snapshot // taken by no batch
	taken []history.Snapshot // in the batch on its way
	gone  []journal.Sequence
}

// applySnapshot makes a snapshot visible if the entity is exactly where the
// snapshot says.
func (m *Machine) applySnapshot(sh *shard, body []byte, paced bool) error {
	var s journal.Snapshot
	if err := s.Decode(body); err != nil {
		return err
	}
	if len(body) > journal.MaxSnapshotBytes {
		return fmt.Errorf("%w: a snapshot has %d bytes", ErrInvalid, len(body))
	}
	typ, id := []byte(s.Entity.Type), []byte(s.Entity.ID)
	if err := verdict.Name(typ, id, "an entity's name"); err != nil {
		return err
	}
	h, err := m.head(sh, typ, id)
	if err != nil {
		return err
	}
	if h.Sequence != s.Sequence || h.Deleted {
		return fmt.Errorf("%w: it is at %d, the snapshot at %d", ErrSequence, h.Sequence, s.Sequence)
	}
	if h.Hash != s.Hash {
		return ErrChain
	}
	kept := h.Snapshots
	kept.Add(s.Sequence, int(s.Keep))
	cut, cutTo, err := m.cutBy(sh, &s, kept, paced)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listDirty(h)
	h.takeCut(&cut)
	if cutTo > h.CutTo {
		h.CutTo = cutTo
		sh.rows.Owe(h.key, &h.Head)
	}
	h.dropSnapshots(h.Snapshots.Add(s.Sequence, int(s.Keep)))
	if len(s.Filter) > 0 {
		h.Stands = h.Last // all command ids up to there are in the filter
	}
	h.dropFresh(s.Sequence)
	h.snaps.gone = slices.DeleteFunc(h.snaps.gone, func(seq journal.Sequence) bool { return seq == s.Sequence })
	h.snaps.fresh = append(h.snaps.fresh, history.Snapshot{Seq: s.Sequence, Raw: body})
	m.unflushed.Add(int64(len(body) + overlayBytes))
	return nil
}

// dropSnapshots forgets snapshots, and where the newest stands. The next batch
// deletes them from the store, where an older one of the same sequence may be
// even if this one is not.
func (h *head) dropSnapshots(gone []journal.Sequence) {
	h.Stands = journal.Position{}
	if h.snaps == nil {
		h.snaps = &snapshots{}
	}
	for _, seq := range gone {
		h.dropFresh(seq)
		h.snaps.gone = append(h.snaps.gone, seq)
	}
}

// dropFresh takes a snapshot out that no batch has taken.
func (h *head) dropFresh(seq journal.Sequence) {
	h.snaps.fresh = slices.DeleteFunc(h.snaps.fresh, func(s history.Snapshot) bool { return s.Seq == seq })
}

// take hands the fresh snapshots and the deletions to a batch.
func (s *snapshots) take() (fresh []history.Snapshot, gone []journal.Sequence) {
	if s == nil {
		return nil, nil
	}
	fresh, gone = s.fresh, s.gone
	s.fresh, s.taken, s.gone = nil, fresh, nil
	return fresh, gone
}

// flushedSnapshots is told that what was taken is in the store.
func (h *head) flushedSnapshots() {
	if h.snaps == nil {
		return
	}
	if h.snaps.taken = nil; len(h.snaps.fresh) == 0 && len(h.snaps.gone) == 0 {
		h.snaps = nil
	}
}

// listDirty makes the next batch write the head.
func (m *Machine) listDirty(h *head) {
	if !h.listed {
		h.listed = true
		m.dirty = append(m.dirty, h)
	}
}

// Snapshot returns the newest snapshot of the entity that use accepts and that
// is older than the sequence below, 0 for any; nil if there is none. A snapshot
// for last resort is returned only if no other one is accepted. A damaged
// snapshot is skipped and logged: the events that it stands for are still
// there. The result is the caller's to keep and not to modify.
//
// Only the caller knows whose states its module reads. Nothing in a snapshot
// says so: a state of another module may load without an error and mean less
// than it did. That holds for truncated histories too, although nothing else is
// left of them.
func (r *Reader) Snapshot(ctx context.Context, id sharding.ShardID, e sharding.EntityID, use journal.SnapshotUse, below journal.Sequence) (*journal.Snapshot, error) {
	s, err := r.entity(id, e)
	if err != nil {
		return nil, fmt.Errorf("read snapshots in shard %d: %w", id, err)
	}
	defer s.View.Close()
	var last *journal.Snapshot // for last resort
	for i := s.Snapshots.Len() - 1; i >= 0; i-- {
		seq := s.Snapshots[i]
		if below != 0 && seq >= below {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		snap, err := s.SnapshotAt(seq)
		if err != nil && !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrUnsupported) {
			return nil, fmt.Errorf("read snapshot in shard %d: %w", id, err)
		}
		if err != nil {
			r.opts.Logger.Error("a snapshot is passed over", "shard_id", uint64(id), "entity_type", e.Type, "error", err)
			continue
		}
		if i == s.Snapshots.Len()-1 {
			snap.Stands, snap.UpdatedAt = s.Stands, s.UpdatedAt
		}
		switch use(snap.Module, s.Cut != nil) {
		case journal.SnapshotLoads:
			return snap, nil
		case journal.SnapshotLastResort:
			if last == nil {
				last = snap
			}
		}
	}
	return last, nil
}

func (b *Batch) putSnapshots(w *headWrite) {
	if len(w.snaps) == 0 && len(w.gone) == 0 {
		return
	}
	for i := range w.snaps {
		s := &w.snaps[i]
		key := append(b.prefix(w.head.shard, store.ClassSnapshot), w.head.key...)
		b.kvs.Put(store.AppendSnapshotSuffix(key, s.Seq), s.Raw)
	}
	for _, seq := range w.gone {
		key := append(b.prefix(w.head.shard, store.ClassSnapshot), w.head.key...)
		b.kvs.Delete(store.AppendSnapshotSuffix(key, seq))
	}
}

// NewestSnapshot returns the sequence of an entity's newest snapshot, whichever
// module made it, and the size of the state in it; zeros where there is none.
func (r *Reader) NewestSnapshot(id sharding.ShardID, e sharding.EntityID) (at journal.Sequence, stateBytes int, err error) {
	s, err := r.entity(id, e)
	if err != nil {
		return 0, 0, fmt.Errorf("read snapshots in shard %d: %w", id, err)
	}
	defer s.View.Close()
	n := s.Snapshots.Len()
	if n == 0 {
		return 0, 0, nil
	}
	snap, err := s.SnapshotAt(s.Snapshots[n-1])
	if err != nil {
		return 0, 0, fmt.Errorf("read snapshot in shard %d: %w", id, err)
	}
	return snap.Sequence, len(snap.State), nil
}

// Takeovers returns where modules have made snapshots of an entity after others
// in what is left of its truncated history; none of any other entity.
func (r *Reader) Takeovers(ctx context.Context, id sharding.ShardID, e sharding.EntityID) ([]journal.Takeover, error) {
	s, err := r.entity(id, e)
	if err != nil {
		return nil, fmt.Errorf("read snapshots in shard %d: %w", id, err)
	}
	defer s.View.Close()
	return s.Takeovers(ctx)
}
