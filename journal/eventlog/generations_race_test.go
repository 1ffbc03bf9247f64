package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Readers see a complete generation or an error to retry while snapshots
// replace each other, entries follow them, and the state is exported.
func TestReadersRaceGenerations(t *testing.T) {
	const entities = 8
	origin := openStore(t, filepath.Join(t.TempDir(), "from"), store.Options{})
	from := openMachine(t, origin, 0, eventlog.Options{})
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 3, BlockBytes: 700})
	a := startApplier(t, m, eventlog.ApplierOptions{Sink: &installs{}, FlushBytes: 3000, FlushInterval: time.Millisecond})
	var done atomic.Bool
	var reads, exports atomic.Int64
	var readers sync.WaitGroup
	for w := range 2 {
		readers.Go(func() {
			for i := w; !done.Load() && !t.Failed(); i++ {
				if readGeneration(t, m, sharding.EntityID{Type: "t", ID: fmt.Sprint("e", i%entities)}) {
					reads.Add(1)
				}
			}
		})
	}
	readers.Go(func() {
		for !done.Load() && !t.Failed() {
			if e, err := a.Pin(1); err == nil {
				s := e.Stream()
				if _, err := io.Copy(io.Discard, s); err != nil {
					t.Error(err)
				}
				s.Close()
				exports.Add(1)
			}
		}
	})
	var last [entities]struct {
		seq  journal.Sequence
		hash journal.Hash
	}
	var chain journal.Chain
	next := uint64(0)
	entryAt := func() journal.Committed {
		n := int(next*7) % entities
		r := record(fmt.Sprint("e", n), last[n].seq, last[n].hash, 1)
		last[n].seq, last[n].hash = r.Last(), chain.After(&r)
		next++
		return journal.Committed{Index: next, Term: 1, Data: entry(1, r)}
	}
	for generation := range uint32(40) {
		for range 20 {
			apply1(from, 1, entryAt())
		}
		flush(t, from, origin)
		_, in := exported(t, from, 1)
		if generation%7 == 3 {
			a.Drop(1, 2*generation+1)
		}
		a.Install(1, 2*generation+2, in)
		for range 10 {
			c := entryAt()
			apply1(from, 1, c)
			a.Apply(1, []journal.Committed{c})
		}
		if generation%3 == 0 {
			waitFor(t, "the generation is there", func() bool { index, _ := m.StateIndex(1); return index == next || t.Failed() })
		}
	}
	waitFor(t, "readers had a turn", func() bool {
		index, _ := m.StateIndex(1)
		return index == next && reads.Load() > 20 && exports.Load() > 2 || t.Failed()
	})
	done.Store(true)
	readers.Wait()
	closeApplier(t, a)
	for _, id := range []string{"e0", "e7"} {
		e := sharding.EntityID{Type: "t", ID: id}
		want, hash, _, _ := from.Head(1, e)
		if seq, h, _, err := m.Head(1, e); seq != want || h != hash || err != nil {
			t.Errorf("%s is at %d, want %d: %v", id, seq, want, err)
		}
	}
}

// installs is a sink that counts installs.
type installs struct {
	collector
	n atomic.Int64
}

func (s *installs) OnInstalled(eventlog.Installed) { s.n.Add(1) }

// readGeneration reads everything about an entity, and returns false if the
// state cannot be read now.
func readGeneration(t *testing.T, m *eventlog.Machine, e sharding.EntityID) bool {
	seq := journal.Sequence(0)
	err := m.Read(context.Background(), 1, e, 0, func(p journal.Position, rec *journal.Record) error {
		if rec.Expected != seq {
			return fmt.Errorf("record at %v expects %d after %d", p, rec.Expected, seq)
		}
		seq = rec.Last()
		return nil
	})
	_, list := m.List(1, "t", "", "", 100)
	_, order := m.ReadOrder(context.Background(), 1, 0, func(*store.OrderRow) error { return nil })
	err = errors.Join(err, list, order)
	if err != nil && !errors.Is(err, eventlog.ErrInstalling) {
		t.Error(err)
	}
	return err == nil
}
