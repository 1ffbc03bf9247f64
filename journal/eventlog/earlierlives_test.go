package eventlog_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/sharding"
)

// Replicas agree on their rows after each entry, no matter when each of them
// flushes and whether it was restarted in between.
func TestReplicasRemoveTheSameRows(t *testing.T) {
	owed, started := 0, 0
	for seed := range uint64(max(3, *seeds/2)) {
		src := newSource(seed+700, 2, 12)
		src.many = true
		a := &journalRun{t: t, dir: filepath.Join(t.TempDir(), "a")}
		b := &journalRun{t: t, dir: filepath.Join(t.TempDir(), "b")}
		for _, r := range []*journalRun{a, b} {
			r.open(0)
			if err := r.m.SetRecoveryTargets(nil); err != nil {
				t.Fatal(err)
			}
		}
		var flying *eventlog.Batch
		var log []logged
		for range 600 {
			id, c, want := src.next()
			log = append(log, logged{id, c, want})
			v := apply1(a.m, id, c)
			checkVerdict(t, v, want)
			checkVerdict(t, apply1(b.m, id, c), want)
			if x, y := a.m.Sums(id), b.m.Sums(id); x.Digest() != y.Digest() {
				t.Fatalf("seed %d: shard %d differs after index %d: %s", seed, id, c.Index, x.Differ(&y))
			}
			if v.Owing {
				owed++
			}
			switch n := src.rng.IntN(12); {
			case n == 0 && flying == nil:
				flying = a.m.TakeBatch()
			case n == 1 && flying != nil:
				if err := flying.Write(a.st); err != nil {
					t.Fatal(err)
				}
				a.m.MarkFlushed(flying)
				flying = nil
			case n > 8 && v.Owing:
				flush(t, b.m, b.st)
				b.cut()
				closeRun(t, b)
				b.open(slices.Max(b.recorded))
				if err := b.m.SetRecoveryTargets(logEnds(log)); err != nil {
					t.Fatal(err)
				}
				b.replay(log, src.rng)
				started++
			}
		}
		flush(t, b.m, b.st)
		verifyStore(t, b.st)
	}
	if owed == 0 || started == 0 {
		t.Fatalf("%d entries left work, %d starts met some", owed, started)
	}
}

// work applies an entry that does only deferred work.
func (a *alarms) work() (owing bool) {
	a.Helper()
	a.index++
	v := apply1(a.m, 1, journal.Committed{Index: a.index, Term: 1, Data: journal.AppendPacedHeader(nil, sharding.MaxVersion, journal.EntryWork, 1, 1)})
	if v.Err != nil {
		a.Fatal(v.Err)
	}
	return v.Owing
}

// remove deletes the entity with an entry of the given cluster version.
func (a *alarms) remove(level sharding.ClusterVersion) {
	a.Helper()
	a.index++
	gone := record(a.id, 0, a.prev, 0)
	gone.Flags = journal.FlagTombstone
	data := journal.AppendRecord(journal.AppendPacedHeader(nil, level, journal.EntryRecords, 1, 1), &gone)
	if v := apply1(a.m, 1, journal.Committed{Index: a.index, Term: 1, Data: data}); v.Err != nil {
		a.Fatal(v.Err)
	}
	a.prev = a.chain.After(&gone)
}

func timerNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("t%04d", i))
	}
	return names
}

// Deleting an entity with many timers ends them immediately for all readers,
// and the next incarnation may reuse the names of these timers, while each
// entry removes a bounded number of rows.
func TestTimersOfEarlierLivesAreRemoved(t *testing.T) {
	const n, slice = 1000, 256
	for _, flushed := range []bool{false, true} {
		t.Run(fmt.Sprintf("flushed=%v", flushed), func(t *testing.T) {
			st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
			a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 1}), st: st, id: "a"}
			names := timerNames(n)
			a.set(5, names...)
			if flushed {
				flush(t, a.m, st)
			}
			a.remove(sharding.VersionPacedWork)
			left := n - slice // the entry itself removes some
			a.want(left)
			verifyStore(t, st)
			a.set(7, "t0001", "t0999", "z")
			left -= slice + 3
			for owing := true; owing; left -= slice {
				a.want(max(left, 0), "t0001", "t0999", "z")
				verifyStore(t, st)
				info, err := a.m.Info(1, sharding.EntityID{Type: "t", ID: "a"})
				if err != nil || info.Timers != 3 || info.Left != uint32(max(left, 0)) || info.Life != 1 {
					t.Fatalf("%d timers, %d left, life %d: %v", info.Timers, info.Left, info.Life, err)
				}
				due, next, err := a.m.DueTimers(t.Context(), 1, 6, 10, nil)
				if err != nil || len(due) != 0 || next != 7 {
					t.Fatalf("%d timers are due, the next at %d: %v", len(due), next, err)
				}
				owing = a.work()
			}
			a.fire(7, "t0999")
			a.want(0, "t0001", "z")
			a.set(9, timerNames(40)...)
			a.remove(sharding.VersionPacedWork) // few enough timers to be removed at once
			a.want(0)
			verifyStore(t, st)
		})
	}
}

// An entry that is not paced removes all timers itself, as replicas of earlier
// releases do.
func TestUnpacedDeletionRemovesAllTimers(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
	a.set(5, timerNames(300)...)
	a.remove(sharding.Version2)
	a.want(0)
	info, err := a.m.Info(1, sharding.EntityID{Type: "t", ID: "a"})
	if err != nil || info.Left != 0 || info.Life != 0 {
		t.Fatalf("%d left in life %d: %v", info.Left, info.Life, err)
	}
	verifyStore(t, st)
}

// The record of a timer of an earlier incarnation is rejected, even if a timer
// with the same name and due time is set in the next incarnation.
func TestTimerOfEarlierLifeDoesNotFire(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
	a.set(5, timerNames(800)...)
	flush(t, a.m, st)
	a.remove(sharding.VersionPacedWork)
	a.index++
	r := record("a", 0, a.prev, 0)
	r.Sections = []journal.Section{{Kind: journal.SectionSource, Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte("t0799"), Due: 5})}}
	if v := apply1(a.m, 1, journal.Committed{Index: a.index, Term: 1, Data: entry(1, r)}); v.Err == nil {
		t.Fatal("a timer of an earlier life fires")
	}
	page, err := a.m.TimerPage(t.Context(), 1, timers.Query{By: math.MaxInt64, Limit: 10, Scan: 10})
	if err != nil || len(page.Timers) != 0 || page.More {
		t.Fatalf("timers of an earlier life are listed: %v, %v", page.Timers, err)
	}
}

// The number and names of an entity's timers are known whether or not the
// entity's row is in memory, and also after a restart.
func TestTimerRoomCountsInMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	st := openStore(t, dir, smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 1}), st: st, id: "a"}
	e := sharding.EntityID{Type: "t", ID: "a"}
	a.set(5, timerNames(100)...)
	a.remove(sharding.VersionPacedWork)
	a.set(5, timerNames(200)...)
	names := [][]byte{[]byte("t0150"), []byte("t0150"), []byte("t0200"), []byte("new")}
	for _, evicted := range []bool{false, true} {
		if evicted {
			flush(t, a.m, st)
			other := &alarms{T: t, m: a.m, st: st, id: "b", index: a.index}
			other.set(5, "x")
			flush(t, a.m, st)
		}
		if has, added := a.m.TimerRoom(1, e, names); has != 200 || added != 2 {
			t.Errorf("evicted=%v: %d timers, %d of the names are new", evicted, has, added)
		}
	}
}
