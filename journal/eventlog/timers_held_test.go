package eventlog_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// alarms is an entity whose records only set and end timers.
type alarms struct {
	*testing.T
	m     *eventlog.Machine
	st    *store.Store
	id    string
	index uint64
	chain journal.Chain
	prev  journal.Hash
}

func (a *alarms) apply(sections ...journal.Section) {
	a.Helper()
	a.index++
	r := record(a.id, 0, a.prev, 0)
	r.Sections = sections
	if v := apply1(a.m, 1, journal.Committed{Index: a.index, Term: 1, Data: entry(1, r)}); v.Err != nil {
		a.Fatal(v.Err)
	}
	a.prev = a.chain.After(&r)
}

func (a *alarms) set(due int64, names ...string) {
	a.Helper()
	var ops []byte
	for _, name := range names {
		ops = journal.AppendTimerOp(ops, journal.TimerOp{Name: []byte(name), Due: due, Command: []byte("ring"), Payload: []byte(name), Cancel: due == 0})
	}
	a.apply(journal.Section{Kind: journal.SectionTimers, Data: ops})
}

func (a *alarms) fire(due int64, name string) {
	a.Helper()
	a.apply(journal.Section{Kind: journal.SectionSource, Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte(name), Due: due})})
}

// want flushes the memtable, and then checks which timers exist and how many of
// them have a row of their own in the store.
func (a *alarms) want(rows int, names ...string) {
	a.Helper()
	flush(a.T, a.m, a.st)
	e := sharding.EntityID{Type: "t", ID: a.id}
	timers, err := a.m.TimersOf(context.Background(), 1, e, 100)
	var got []string
	for i := range timers {
		got = append(got, timers[i].Name)
		if string(timers[i].Payload) != timers[i].Name {
			a.Errorf("%s has the payload of %s", timers[i].Name, timers[i].Payload)
		}
	}
	slices.Sort(got)
	if err != nil || !slices.Equal(got, names) {
		a.Errorf("timers %v, want %v: %v", got, names, err)
	}
	due, _, err := a.m.DueTimers(context.Background(), 1, math.MaxInt64-1, 100, nil)
	if err != nil || len(due) != len(names) {
		a.Errorf("%d timers by their due times, want %d: %v", len(due), len(names), err)
	}
	view, err := a.st.ViewAt(a.st.MaxVersion())
	if err != nil {
		a.Fatal(err)
	}
	defer view.Close()
	n := 0
	if err := view.Scan(store.AppendPrefix(nil, 1, 0, store.ClassTimer), nil, func(_, _ []byte) error { n++; return nil }); err != nil || n != rows {
		a.Errorf("%d rows, want %d: %v", n, rows, err)
	}
}

// An entity's first timers are in its row, and its other timers have rows of
// their own. Reads find timers in both places, in memory and in the store.
func TestEntityRowsHoldFirstTimers(t *testing.T) {
	for _, often := range []bool{false, true} { // flushed in between
		t.Run(fmt.Sprintf("flushed=%v", often), func(t *testing.T) {
			st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
			a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 1}), st: st, id: "a"}
			other := &alarms{T: t, m: a.m, st: st, id: "b"}
			step := func(do func()) {
				a.Helper()
				do()
				if often {
					flush(t, a.m, st)
					other.index = a.index // evicts the entity's row from memory
					other.set(0, "none")
					a.index = other.index
					flush(t, a.m, st)
				}
			}
			step(func() { a.set(5, "1", "2", "3") })
			a.want(0, "1", "2", "3")
			step(func() { a.set(6, "4", "5", "6") })
			a.want(2, "1", "2", "3", "4", "5", "6")
			step(func() { a.fire(5, "2") }) // in the entity's row, which has room again
			step(func() { a.set(7, "5") })  // has a row of its own and keeps it
			step(func() { a.set(8, "7") })
			a.want(2, "1", "3", "4", "5", "6", "7")
			step(func() { a.fire(7, "5") })
			step(func() { a.fire(8, "7") })
			step(func() { a.set(9, "5") }) // had a row of its own before, and has none now
			a.want(1, "1", "3", "4", "5", "6")
			step(func() { a.set(0, "1", "4", "6") })
			a.want(0, "3", "5")
			step(func() { a.set(10, "1", "2", "4") })
			a.want(1, "1", "2", "3", "4", "5")
			step(func() { // both in one batch
				a.fire(9, "5")
				a.set(11, "5")
				a.set(0, "2")
				a.set(12, "2")
			})
			a.want(1, "1", "2", "3", "4", "5")
			a.index++
			gone := record("a", 0, a.prev, 0)
			gone.Flags = journal.FlagTombstone
			if v := apply1(a.m, 1, journal.Committed{Index: a.index, Term: 1, Data: entry(1, gone)}); v.Err != nil {
				t.Fatal(v.Err)
			}
			a.want(0)
			if report, err := st.Verify(t.Context(), st.MaxVersion()); err != nil || report.Err() != nil {
				t.Error(err, report.Err())
			}
		})
	}
}

// If a timer is set during a read and is due before all timers that the read
// found, the next read finds it.
func TestTimerSetDuringReadIsFoundLater(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	a := &alarms{T: t, m: openMachine(t, st, 0, eventlog.Options{}), st: st, id: "a"}
	a.set(100, "late")
	flush(t, a.m, st)
	set := false
	meanwhile := func(sharding.EntityID, string, int64) bool {
		if !set {
			set = true
			a.set(50, "early")
		}
		return false
	}
	if due, _, err := a.m.DueTimers(t.Context(), 1, 1000, 10, meanwhile); err != nil || len(due) != 1 {
		t.Fatalf("%d timers are due, want the first: %v", len(due), err)
	}
	flush(t, a.m, st) // so that the timer can be only in the store
	if due, _, err := a.m.DueTimers(t.Context(), 1, 1000, 10, nil); err != nil || len(due) != 2 {
		t.Fatalf("%d timers are due, want both: %v", len(due), err)
	}
}
