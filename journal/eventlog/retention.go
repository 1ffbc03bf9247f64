package eventlog

import (
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
)

// A snapshot may say that records before it are not kept. What is cut is a
// function of the snapshots that the entity keeps, so it is the same on every
// replica: the records before all that a load of the oldest kept snapshot
// reads, its window of command ids included. The head then says where the
// records begin, by the last link of the chain that was cut. Packs that hold
// nothing else are deleted with the next batch.

// cutBy finds what a snapshot of the entity cuts, which has the snapshots given
// once it is taken: in a paced entry only up to where. Later entries truncate
// the records up to there.
func (m *Machine) cutBy(sh *shard, s *journal.Snapshot, kept store.Snapshots, paced bool) (c history.Cutting, to journal.Sequence, err error) {
	if s.Retain == 0 {
		return c, 0, nil
	}
	e, err := m.entity(sh.id, s.Entity)
	if err != nil {
		return c, 0, err
	}
	defer e.View.Close()
	if !paced {
		c, err = e.CutBy(s, kept)
		return c, 0, err
	}
	to, err = e.CutBefore(s, kept)
	if begins := (&Info{Head: e.Head}).Begins(); to <= begins {
		to = 0
	}
	return c, to, err
}

// takeCut makes the entity's records begin at the cut. The caller holds the lock.
func (h *head) takeCut(c *history.Cutting) {
	if c.Cut == nil {
		return
	}
	h.Cut, h.cut = c.Cut, true
	h.Records -= c.Records
	h.Bytes -= c.Bytes
	h.shard.applied.Bytes -= c.Bytes
}

// dropRecords deletes the packs of which nothing is left after a cut. They were
// in the store before this batch.
func (b *Batch) dropRecords(w *headWrite, st kv.Store) error {
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

// cutAway reports that all records up to a position were cut.
func (w *headWrite) cutAway(last journal.Position) bool {
	return w.state.Cut != nil && !w.state.Cut.Last.Less(last)
}

// Begins returns the first sequence of an entity that is kept: 1, or what
// follows a cut.
func (i *Info) Begins() journal.Sequence {
	if i.Cut == nil {
		return 1
	}
	return i.Cut.Sequence + 1
}
