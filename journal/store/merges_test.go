package store

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
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
// one alone no more, and all they want when new tables pile up or the store
// closes.
func TestMergesTakeTurns(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := &merges{now: func() time.Time { return now }, processors: 2, stopped: make(chan struct{})}
	later := func(d time.Duration) {
		now = now.Add(d)
		m.written()
	}
	later(0)
	const took, each = 30 * time.Millisecond, 30 * time.Millisecond * mergeShare / 2
	for i := range 5 { // all at once
		if got, want := m.turn(took, newTables), time.Duration(i)*each; got != want {
			t.Errorf("goroutine %d waits %s, want %s", i, got, want)
		}
	}
	later(5*each + time.Hour)
	for range 3 { // one, which comes back
		if got := m.turn(took, newTables); got != 0 && got != each-took {
			t.Errorf("alone it waits %s", got)
		} else {
			later(got + took)
		}
	}
	later(time.Hour)
	m.turn(time.Hour, 0)
	if got := m.turn(took, newTables); got != mergeMost*mergeShare/2 {
		t.Errorf("after one that took long: %s", got)
	}
	later(time.Hour)
	m.turn(took, (newTables+mergePressed)/2)
	if got := m.turn(took, 0); got != each/2 {
		t.Errorf("half way to where it hurries: %s, want %s", got, each/2)
	}
	now = now.Add(mergeFree + 1)
	if got := m.turn(took, 0); got != 0 {
		t.Errorf("when nothing is written it waits %s", got)
	}
	m.written()
	for range 3 {
		if got := m.turn(took, mergePressed); got != 0 {
			t.Errorf("with %d new tables it waits %s", mergePressed, got)
		}
	}
}

// TestStoresCloseWhileMergesWait: whoever waits goes on.
func TestStoresCloseWhileMergesWait(t *testing.T) {
	s := open(t, t.TempDir(), Options{After: func(time.Duration) <-chan time.Time { return nil }})
	s.merges.written()
	s.merges.turn(time.Second, 0)
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
