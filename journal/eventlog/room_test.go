package eventlog_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// On a full disk, applied entries are read from memory and reach the store once
// there is room; Close leaves them to the log.
func TestBatchesWaitForDiskSpace(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	var room atomic.Bool
	timer := make(chan time.Time)
	sink := &collector{}
	a := startApplier(t, m, eventlog.ApplierOptions{
		Sink: sink, FlushBytes: 1, Room: room.Load, After: func(time.Duration) <-chan time.Time { return timer },
	})
	a.Apply(1, []journal.Committed{{Index: 1, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))}})
	for range 3 {
		timer <- time.Time{}
	}
	e := sharding.EntityID{Type: "t", ID: "a"}
	if seq, hash, exists, err := m.Head(1, e); err != nil || !exists || seq != 1 || a.Flushes() != 0 || a.Backlog() == 0 {
		t.Fatalf("without room: sequence %d of %x, %v, %v; %d flushes, backlog %d", seq, hash, exists, err, a.Flushes(), a.Backlog())
	}
	room.Store(true)
	waitFor(t, "the batch is written", func() bool {
		select {
		case timer <- time.Time{}: // the previous check may have found room
		default:
		}
		return a.Flushes() == 1 && a.Backlog() == 0
	})
	room.Store(false)
	_, hash, _, err := m.Head(1, e)
	if err != nil {
		t.Fatal(err)
	}
	a.Apply(1, []journal.Committed{{Index: 2, Term: 1, Data: entry(1, record("a", 1, hash, 1))}})
	closeApplier(t, a)
	if index, _ := m.Applied(1); index != 2 || a.Flushes() != 1 {
		t.Fatalf("applied to %d, %d flushes", index, a.Flushes())
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = openStore(t, st.Dir(), smallStore)
	if index, _ := openMachine(t, st, st.Watermark(), eventlog.Options{}).Applied(1); index > 1 {
		t.Fatalf("the store holds index %d", index)
	}
}
