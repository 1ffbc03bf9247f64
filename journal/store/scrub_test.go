package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4/table"

	"github.com/hostd/hostd/journal/disk"
)

// ownTime is a clock that advances only when somebody waits.
type ownTime struct {
	mu  sync.Mutex
	now time.Time
}

func (c *ownTime) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *ownTime) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	fired := make(chan time.Time, 1)
	fired <- c.now
	return fired
}

// scrubOnce runs one pass and returns the tables that it names.
func scrubOnce(t *testing.T, s *Store) (named []string) {
	t.Helper()
	p := scrubber{st: s, opts: ScrubOptions{BytesPerSecond: 1 << 30, Damaged: func(err error) {
		var damage *DamageError
		if !errors.As(err, &damage) {
			t.Error(err)
			return
		}
		named = append(named, damage.Where)
	}}}
	if err := p.tables(t.Context()); err != nil {
		t.Fatal(err)
	}
	return named
}

// entries returns the content of a table.
func entries(t *testing.T, name string) (all string) {
	t.Helper()
	id, _ := table.ParseFileID(name)
	f, err := openTableFile(disk.OS{}, filepath.Dir(name), id, compression, &reading{})
	if err != nil {
		return "damaged"
	}
	it := f.NewIterator(table.NOCACHE)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		all += fmt.Sprintf("%x %x\n", it.Key(), it.Value().Value)
	}
	return all
}

// TestScrubNamesTheTableWithABadBit: the next pass finds a flipped bit in any
// table if the bit matters. A flipped bit does not matter if it is unused, or
// if it turns bytes into a different encoding of the same value.
func TestScrubNamesTheTableWithABadBit(t *testing.T) {
	s, _ := twoVersions(t, 1000)
	if named := scrubOnce(t, s); len(named) > 0 {
		t.Fatal(named)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	found := 0
	for _, name := range tableNames(t, s) {
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said := entries(t, name)
		for range 60 {
			flipTable(t, name, rng)
			switch named := scrubOnce(t, s); {
			case len(named) == 1 && named[0] == filepath.Base(name):
				found++
			case len(named) > 0 || entries(t, name) != said:
				t.Errorf("%v: want %s", named, filepath.Base(name))
			}
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt(whole, 0)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d flips were found", found)
	}
}

// TestScrubKeepsItsRate checks the rate within a pass and the interval between
// passes.
func TestScrubKeepsItsRate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{MemTableBytes: 4 << 20})
	var b Batch
	fill := noise(1 << 20)
	for version := uint64(1); version <= 12; version++ {
		b.Reset()
		for n := range 100 {
			b.Put(key(int(version), n), []byte(fill[n*10_000:][:10_000]))
		}
		if err := s.Write(&b, version); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	clock := &ownTime{now: time.Unix(1_700_000_000, 0)}
	s = open(t, dir, Options{MemTableBytes: 4 << 20, Now: clock.Now, After: clock.After})
	const rate = 100 << 10 // a table takes more than scrubTable
	ctx, cancel := context.WithCancel(t.Context())
	began, bytes := clock.Now(), uint64(0)
	var passes uint64
	s.opts.After = func(d time.Duration) <-chan time.Time {
		now := s.ScrubStats()
		if took := clock.Now().Sub(began); float64(now.Bytes) > rate*took.Seconds()+8<<20 {
			t.Errorf("%d bytes in %s", now.Bytes, took)
		}
		if now.Passes > passes {
			passes, bytes = now.Passes, now.Bytes
		}
		if passes == 3 {
			cancel()
			return nil
		}
		return clock.After(d)
	}
	err := s.Scrub(ctx, ScrubOptions{BytesPerSecond: rate, Every: 10 * time.Minute, Damaged: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	took := clock.Now().Sub(began)
	// The first two passes end before the next may begin.
	third := time.Duration(float64(bytes) / 3 / rate * float64(time.Second))
	if bytes < 30<<20 || took < 20*time.Minute+third-time.Second || took > 20*time.Minute+third+time.Second {
		t.Errorf("3 passes over %d bytes took %s, want 20 m and %s", bytes, took, third)
	}
	// The lowest rate works, and Scrub returns at once when ctx ends.
	ctx, cancel = context.WithCancel(t.Context())
	s.opts.After = func(time.Duration) <-chan time.Time {
		cancel()
		return nil
	}
	if err := s.Scrub(ctx, ScrubOptions{BytesPerSecond: MinScrubRate, Damaged: func(err error) { t.Error(err) }}); err != nil {
		t.Error(err)
	}
	for _, bad := range []ScrubOptions{{BytesPerSecond: 1 << 20}, {BytesPerSecond: 1<<30 + 1, Damaged: func(error) {}}} {
		if err := s.Scrub(ctx, bad); err == nil {
			t.Errorf("taken: %+v", bad)
		}
	}
}

// TestScrubWhileTablesAreMerged: tables replaced during a scrub are not damage.
func TestScrubWhileTablesAreMerged(t *testing.T) {
	s := open(t, t.TempDir(), Options{MemTableBytes: minMemTableBytes})
	fill := noise(1 << 20)
	var writing sync.WaitGroup
	stop := make(chan struct{})
	writing.Go(func() {
		for version := uint64(1); ; version++ {
			var b Batch
			for n := range 100 {
				b.Put(key(1, rand.IntN(400)), []byte(fill[rand.IntN(500_000)+n:][:2000]))
			}
			if err := s.Write(&b, version); err != nil {
				t.Error(err)
			}
			if version > 2 {
				s.SetDiscard(version - 2)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for n, highest := 0, uint64(0); n < 30 || highest < 120; n++ {
		if named := scrubOnce(t, s); len(named) > 0 {
			t.Error(named)
		}
		for _, info := range s.tables() {
			highest = max(highest, info.ID)
		}
	}
	close(stop)
	writing.Wait()
}
