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

// snapshots is the part of an entity's memtable for snapshots.
type snapshots struct {
	fresh []history.Snapshot // in no batch yet
	taken []history.Snapshot // in the batch in flight
	gone  []journal.Sequence
}

// applySnapshot makes a snapshot visible if the entity is exactly at the
// snapshot's sequence and hash.
func (m *Machine) applySnapshot(sh *shard, body []byte, paced bool) error {
	var s journal.Snapshot
	if err := s.Decode(body); err != nil {
		return err
	}
	if len(body) > journal.MaxSnapshotBytes {
		return fmt.Errorf("%w: a snapshot has %d bytes", ErrInvalid, len(body))
	}
	typ, id := []byte(s.Entity.Type), []byte(s.Entity.ID)
	if err := verdict.CheckName(typ, id, "an entity's name"); err != nil {
		return err
	}
	h, err := m.row(sh, typ, id)
	if err != nil {
		return err
	}
	if h.Sequence != s.Sequence || h.Deleted {
		return fmt.Errorf("%w: the entity is at sequence %d, the snapshot at %d", ErrSequence, h.Sequence, s.Sequence)
	}
	if h.Hash != s.Hash {
		return ErrChain
	}
	kept := h.Snapshots
	kept.Add(s.Sequence, int(s.Keep))
	cut, cutTo, err := m.truncationBy(sh, &s, kept, paced)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listDirty(h)
	h.applyTruncation(&cut)
	if cutTo > h.CutTo {
		h.CutTo = cutTo
		sh.rows.Owe(h.key, &h.Head)
	}
	h.dropSnapshots(h.Snapshots.Add(s.Sequence, int(s.Keep)))
	if len(s.Filter) > 0 {
		h.Stands = h.Last // the filter contains all command ids up to this position
	}
	h.dropFresh(s.Sequence)
	h.snaps.gone = slices.DeleteFunc(h.snaps.gone, func(seq journal.Sequence) bool { return seq == s.Sequence })
	h.snaps.fresh = append(h.snaps.fresh, history.Snapshot{Seq: s.Sequence, Raw: body})
	m.unflushed.Add(int64(len(body) + memtableRecordBytes))
	return nil
}

// dropSnapshots removes snapshots, and the recorded position of the latest
// snapshot. The next batch deletes them from the store even if they have not
// reached it, because the store may have an older snapshot of the same
// sequence.
func (h *entityRow) dropSnapshots(gone []journal.Sequence) {
	h.Stands = journal.Position{}
	if h.snaps == nil {
		h.snaps = &snapshots{}
	}
	for _, seq := range gone {
		h.dropFresh(seq)
		h.snaps.gone = append(h.snaps.gone, seq)
	}
}

// dropFresh removes a snapshot that is in no batch yet.
func (h *entityRow) dropFresh(seq journal.Sequence) {
	h.snaps.fresh = slices.DeleteFunc(h.snaps.fresh, func(s history.Snapshot) bool { return s.Seq == seq })
}

// take passes the fresh snapshots and the deletions to a batch.
func (s *snapshots) take() (fresh []history.Snapshot, gone []journal.Sequence) {
	if s == nil {
		return nil, nil
	}
	fresh, gone = s.fresh, s.gone
	s.fresh, s.taken, s.gone = nil, fresh, nil
	return fresh, gone
}

// markSnapshotsFlushed must be called when the snapshots of the batch are in
// the store.
func (h *entityRow) markSnapshotsFlushed() {
	if h.snaps == nil {
		return
	}
	if h.snaps.taken = nil; len(h.snaps.fresh) == 0 && len(h.snaps.gone) == 0 {
		h.snaps = nil
	}
}

// listDirty adds the row to the rows that the next batch writes.
func (m *Machine) listDirty(h *entityRow) {
	if !h.listed {
		h.listed = true
		m.dirty = append(m.dirty, h)
	}
}

// Snapshot returns the latest snapshot of the entity that use accepts and that
// is older than sequence below (0 for any), or nil if there is none. A snapshot
// of last resort is returned only if no other snapshot is accepted. Damaged
// snapshots are logged and skipped, because the events that they summarize
// still exist. The caller may keep the result but must not modify it.
//
// Only the caller knows which modules' states its module can read. The snapshot
// does not contain that information, and the state of a different module may
// load without an error but lose information. The same holds for truncated
// histories, of which only a snapshot is left.
func (r *Reader) Snapshot(ctx context.Context, id sharding.ShardID, e sharding.EntityID, use journal.SnapshotUse, below journal.Sequence) (*journal.Snapshot, error) {
	s, err := r.entity(id, e)
	if err != nil {
		return nil, fmt.Errorf("read snapshots in shard %d: %w", id, err)
	}
	defer s.View.Close()
	var last *journal.Snapshot // snapshot of last resort
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
			r.opts.Logger.Error("skipping a damaged snapshot", "shard_id", uint64(id), "entity_type", e.Type, "error", err)
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

func (b *Batch) putSnapshots(w *rowWrite) {
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

// NewestSnapshot returns the sequence of an entity's latest snapshot, whichever
// module made it, and the size of its state; zeros if there is none.
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

// Takeovers returns the points in an entity's truncated history at which a
// different module started to make its snapshots. It returns no points if the
// history is not truncated.
func (r *Reader) Takeovers(ctx context.Context, id sharding.ShardID, e sharding.EntityID) ([]journal.Takeover, error) {
	s, err := r.entity(id, e)
	if err != nil {
		return nil, fmt.Errorf("read snapshots in shard %d: %w", id, err)
	}
	defer s.View.Close()
	return s.Takeovers(ctx)
}
