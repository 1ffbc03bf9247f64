package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
)

// Truncation of histories. A snapshot may declare that earlier records are not
// retained. A load from the oldest kept snapshot needs the records after that
// snapshot and the records in its idempotency window. All records before these
// are truncated. Which records are truncated depends only on the snapshots that
// the entity keeps, so every replica truncates the same records. The entity row
// then records where the history starts, with the hash chain at that point.
// Blocks that contain nothing else are deleted with the next batch.

// truncationBy finds what a snapshot of the entity truncates, given the
// snapshots that are kept afterwards. If the entry is paced, it returns only
// the sequence up to which later entries truncate.
func (m *Machine) truncationBy(sh *shard, s *journal.Snapshot, kept store.Snapshots, paced bool) (c history.Truncation, to journal.Sequence, err error) {
	if s.Retain == 0 {
		return c, 0, nil
	}
	e, err := m.entity(sh.id, s.Entity)
	if err != nil {
		return c, 0, err
	}
	defer e.View.Close()
	if !paced {
		c, err = e.TruncateBy(s, kept)
		return c, 0, err
	}
	to, err = e.TruncateBefore(s, kept)
	if begins := (&Info{Head: e.Head}).FirstSequence(); to <= begins {
		to = 0
	}
	return c, to, err
}

// applyTruncation moves the start of the entity's records. The lock must be
// held.
func (h *entityRow) applyTruncation(c *history.Truncation) {
	if c.Cut == nil {
		return
	}
	h.Cut, h.cut = c.Cut, true
	h.Records -= c.Records
	h.Bytes -= c.Bytes
	h.shard.applied.Bytes -= c.Bytes
}

// dropRecords deletes blocks that are empty after a truncation. These blocks
// were in the store before this batch.
func (b *Batch) dropRecords(w *rowWrite, st kv.Store) error {
	if !w.cut {
		return nil
	}
	view, err := st.ViewAt(b.base)
	if err != nil {
		return err
	}
	defer view.Close()
	cut := w.state.Cut
	prefix := append(store.AppendPrefix(nil, w.head.shard.id, w.head.shard.generation, store.ClassRecord), w.head.key...)
	return view.Scan(prefix, nil, func(key, _ []byte) error {
		seq, last, err := store.CutRecordSuffix(key[len(prefix):])
		if err != nil {
			return err
		}
		if seq > cut.Sequence {
			return store.ErrStop
		}
		if !cut.Last.Less(last) {
			b.kvs.Delete(append(b.kvs.Key(), key...))
		}
		return nil
	})
}

// isTruncated reports whether all records up to a position were truncated.
func (w *rowWrite) isTruncated(last journal.Position) bool {
	return w.state.Cut != nil && !w.state.Cut.Last.Less(last)
}

// FirstSequence returns the first sequence of the entity that is retained: 1,
// or the sequence after the last truncated event.
func (i *Info) FirstSequence() journal.Sequence {
	if i.Cut == nil {
		return 1
	}
	return i.Cut.Sequence + 1
}
