package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
)

// A snapshot may say that records before it are not kept. What is cut is a
// function of the snapshots that the entity keeps, so it is the same on every
// replica: the records before all that a load of the oldest kept snapshot
// reads, its window of command ids included. The head then says where the
// records begin, by the last link of the chain that was cut. Packs that hold
// nothing else are deleted with the next batch.

// cutRecords bounds the records that one snapshot has cut: the next one goes
// on.
const cutRecords = 4096

// errCutFound ends the reading of what is to be cut.
var errCutFound = errors.New("what is to be cut is read")

// cutting is what a snapshot cuts.
type cutting struct {
	cut            *store.Cut
	records, bytes uint64
}

// cutBy finds what a snapshot of the entity cuts, which has the snapshots given
// once it is taken.
func (m *Machine) cutBy(sh *shard, h *head, s *journal.Snapshot, kept store.Snapshots) (c cutting, err error) {
	if s.Retain == 0 {
		return c, nil
	}
	e, err := m.snapshot(sh.id, s.Entity)
	if err != nil {
		m.failStore(err)
		return c, err
	}
	defer e.view.Close()
	window := s.Window
	if oldest := kept[0]; oldest != s.Sequence {
		old, err := e.snapshotAt(oldest)
		if err != nil {
			m.failStore(err)
			return c, err
		}
		window = old.Window
	}
	before := s.CutBefore(window)
	f := &follower{ctx: context.Background(), end: e.Last}
	f.anchor(h.Cut)
	var last store.Cut
	f.fn = func(at journal.Position, _ *journal.Record, after journal.Hash) error {
		if f.view.Last() >= before || c.records == cutRecords {
			return errCutFound
		}
		c.records++
		c.bytes += uint64(len(f.view.Raw))
		last = store.Cut{Sequence: f.view.Last(), Hash: after, Last: at}
		return nil
	}
	if err = e.walk(f); err != nil && !errors.Is(err, errCutFound) {
		m.failStore(err)
		return cutting{}, fmt.Errorf("cut the records of an entity: %w", err)
	}
	if last.Sequence == 0 {
		return cutting{}, nil // no event would be gone
	}
	c.cut = &last
	return c, nil
}

// take makes the entity's records begin at the cut. The caller holds the lock.
func (c *cutting) take(sh *shard, h *head) {
	if c.cut == nil {
		return
	}
	h.Cut, h.cut = c.cut, true
	h.Records -= c.records
	h.Bytes -= c.bytes
	sh.applied.Bytes -= c.bytes
}

// anchor starts the follower at the beginning of an entity's records.
func (f *follower) anchor(c *store.Cut) {
	f.started = true
	if c != nil {
		f.at, f.seq, f.hash = c.Last, c.Sequence, c.Hash
	}
}

// begin starts the follower for a reading from a sequence on; what was cut is
// an error.
func (f *follower) begin(c *store.Cut, from journal.Sequence) error {
	f.from = from
	switch {
	case c != nil && from < c.Sequence:
		return &journal.CutError{First: c.Sequence + 1}
	case from == 0 || c != nil && from == c.Sequence:
		f.anchor(c)
	}
	return nil
}

// dropRecords deletes the packs of which nothing is left after a cut. They were
// in the store before this batch.
func (b *Batch) dropRecords(w *headWrite, st Store) error {
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
