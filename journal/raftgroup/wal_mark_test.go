package raftgroup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
)

// TestMarkOfIdleLogIsSynced stops the wall clock, cuts the power after a tick
// without appends, and damages the last record. The log is rejected because its
// durable mark covers that record. If records are appended in every tick, the
// mark is synced at intervals of the wall clock instead.
func TestMarkOfIdleLogIsSynced(t *testing.T) {
	for seed := range uint64(20) {
		fs := disktest.NewCrashable(rand.New(rand.NewPCG(seed, 5)))
		now := time.Unix(1_700_000_000, 0)
		opts := wal.Options{SegmentBytes: 256 << 10, Rand: func() uint64 { return 3 }, Now: func() time.Time { return now }}
		log, err := wal.Open(fs, "wal", opts)
		if err != nil {
			t.Fatal(err)
		}
		n := &lonely{fs: fs, log: log, machine: newMachine(), sink: newSink()}
		if n.rec, err = recovery.Recover(log); err != nil {
			t.Fatal(err)
		}
		n.driver, err = NewDriver(n.rec, Options{Log: log, Machine: n.machine, Sink: n.sink, AppliedIndex: n.machine.index, TruncateTicks: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if err, _ := n.driver.Create(one(1)); err != nil {
			t.Fatal(err)
		}
		turns := func() {
			for n.driver.Core().HasWork() {
				if err := n.driver.Turn(); err != nil {
					t.Fatal(err)
				}
			}
		}
		tick := func() {
			if err := n.driver.Tick(); err != nil {
				t.Fatal(err)
			}
			turns()
		}
		turns()
		synced := log.Stats().MarkSyncs
		for i := range 10 {
			if err := n.driver.Core().Propose(1, n.sink.leader(1).Term, uint64(i), fmt.Appendf(nil, "%0100d", i)); err != nil {
				t.Fatal(err)
			}
			turns()
			tick()
		}
		if got := log.Stats().MarkSyncs; got != synced {
			t.Fatalf("%d syncs of the mark of a log that is written in each tick", got-synced)
		}
		tail := log.Tail()
		tick()
		if log.Tail() != tail || len(n.machine.data(1)) != 10 {
			t.Fatalf("the log is not idle, or holds %d entries", len(n.machine.data(1)))
		}
		fs.Crash()
		if err := fs.Corrupt(fmt.Sprintf("wal/%016x.wal", tail.Segment), tail.Offset-40, 1); err != nil {
			t.Fatal(err)
		}
		var damage *wal.DamageError
		if _, err := wal.Open(fs, "wal", opts); !errors.As(err, &damage) {
			t.Fatalf("seed %d: a damaged last record passes for a torn one: %v", seed, err)
		}
	}
}
