package store

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// TestMergedTablesAreReported: Badger tells of each table that it merges, as the
// pacing needs it to.
func TestMergedTablesAreReported(t *testing.T) {
	s := open(t, t.TempDir(), Options{MemTableBytes: minMemTableBytes, After: func(time.Duration) <-chan time.Time {
		now := make(chan time.Time)
		close(now)
		return now
	}})
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	var b Batch
	for version := uint64(1); ; version++ {
		b.Reset()
		for range 64 {
			key := binary.BigEndian.AppendUint64(AppendPrefix(b.Key(), 1, 1, ClassOrder), rng.Uint64())
			b.Put(key, make([]byte, 1<<10))
		}
		if err := s.Write(&b, version); err != nil {
			t.Fatal(err)
		}
		s.merges.mu.Lock()
		merged := s.merges.tables
		s.merges.mu.Unlock()
		if merged > 0 && s.db.Levels()[0].NumTables < newTables {
			return // some were merged
		}
		if version > 40_000 {
			t.Fatalf("%d tables are reported, %d are new", merged, s.db.Levels()[0].NumTables)
		}
	}
}

// TestMergesTakeTurns: goroutines that merge get together what the share allows,
// one alone no more, and all they want when much is owed or nothing is
// written, also those that wait already.
func TestMergesTakeTurns(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := &merges{now: func() time.Time { return now }, processors: 2, stopped: make(chan struct{})}
	later := func(d time.Duration) {
		now = now.Add(d)
		m.written()
	}
	later(0)
	turn := func(took time.Duration, owed int) time.Duration { return m.wait(m.bill(took, owed), owed) }
	const took, each = 30 * time.Millisecond, 30 * time.Millisecond * mergeShare / 2
	for i := range 5 { // all at once
		if got, want := turn(took, newTables), time.Duration(i)*each; got != want {
			t.Errorf("goroutine %d waits %s, want %s", i, got, want)
		}
	}
	later(5*each + time.Hour)
	for range 3 { // one, which comes back
		if got := turn(took, newTables); got != 0 && got != each-took {
			t.Errorf("alone it waits %s", got)
		} else {
			later(got + took)
		}
	}
	later(time.Hour)
	turn(time.Hour, 0)
	if got := turn(took, newTables); got != mergeMost*mergeShare/2 {
		t.Errorf("after one that took long: %s", got)
	}
	later(time.Hour)
	turn(took, newTables)
	const half = (newTables + mergePressed) / 2
	ticket := m.bill(took, newTables)
	for _, is := range []struct {
		owed int
		want time.Duration
	}{{newTables, each}, {half, each / 2}, {mergePressed, 0}} {
		if got := m.wait(ticket, is.owed); got != is.want {
			t.Errorf("with %d tables owed it waits %s, want %s", is.owed, got, is.want)
		}
	}
	turn(took, newTables)
	ticket = m.bill(took, newTables)
	later(each / 4)
	m.wait(ticket, newTables)
	later(each / 4)
	if got := m.wait(ticket, half); got != each/8 {
		t.Errorf("a quarter paid at the share, half at twice that: %s left, want %s", got, each/8)
	}
	now = now.Add(mergeFree + 1)
	if got := turn(took, 0); got != 0 {
		t.Errorf("when nothing is written it waits %s", got)
	}
	if got := m.wait(ticket, 0); got != 0 {
		t.Errorf("who waited then waits %s", got)
	}
}

// TestWhatIsOwedIsCountedInBytes: new tables that were joined, and levels that
// hold more than they should, count as well as the number of tables.
func TestWhatIsOwedIsCountedInBytes(t *testing.T) {
	const table = 8 << 20
	levels := func(sizes ...int64) (all []badger.LevelInfo) {
		for i, n := range sizes {
			all = append(all, badger.LevelInfo{Level: i, NumTables: 1, Size: n * table, TargetSize: 10 * table})
		}
		all[0].TargetSize = 0
		return all
	}
	for _, tt := range []struct {
		what   string
		levels []badger.LevelInfo
		want   int
	}{
		{"nothing", levels(0, 0, 0, 0), 1},
		{"one new table, of thirty", levels(30, 0, 0, 0), 30},
		{"levels within their size", levels(2, 10, 9, 0), 2},
		{"two beyond theirs", levels(2, 15, 30, 0), 27},
		{"the last, which has none", levels(2, 10, 10, 500), 2},
	} {
		if got := owedTables(tt.levels, table); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
	many := levels(1, 0, 0, 0)
	many[0].NumTables = 25
	if got := owedTables(many, table); got != 25 {
		t.Errorf("25 small tables: %d", got)
	}
}

// TestStoresCloseWhileMergesWait: whoever waits goes on.
func TestStoresCloseWhileMergesWait(t *testing.T) {
	s := open(t, t.TempDir(), Options{After: func(time.Duration) <-chan time.Time { return nil }})
	s.merges.written()
	s.merges.bill(time.Second, 0)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		s.merges.merged(time.Millisecond)
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-waited
}
