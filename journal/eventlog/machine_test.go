package eventlog_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

var seeds = flag.Int("seeds", 4, "number of seeds of the model tests")

// smallStore finishes tables after a few batches.
var smallStore = store.Options{MemTableBytes: 256 << 10, BlockCacheBytes: 1 << 20, IndexCacheBytes: 1 << 20}

func openStore(t testing.TB, dir string, opts store.Options) *store.Store {
	t.Helper()
	st, err := store.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func maxLevel() sharding.ClusterVersion { return sharding.MaxVersion }

func openMachine(t testing.TB, st *store.Store, watermark uint64, opts eventlog.Options) *eventlog.Machine {
	t.Helper()
	if opts.ClusterVersion == nil {
		opts.ClusterVersion = maxLevel
	}
	m, err := eventlog.Open(st, watermark, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetRecoveryTargets(nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func flush(t testing.TB, m *eventlog.Machine, st *store.Store) {
	t.Helper()
	b := m.TakeBatch()
	if b == nil {
		return
	}
	if err := b.Write(st); err != nil {
		t.Fatal(err)
	}
	m.MarkFlushed(b)
}

func apply1(m *eventlog.Machine, id sharding.ShardID, c journal.Committed) eventlog.ApplyResult {
	return m.Apply(id, []journal.Committed{c})[0]
}

// The Machine returns the same results as the model, no matter when flushes
// happen and how few rows may stay in memory.
func TestMachineAgreesWithModel(t *testing.T) {
	seeds := uint64(*seeds)
	if testing.Short() {
		seeds = min(seeds, 1)
	}
	for seed := range seeds {
		src := newSource(seed, 1+int(seed%3), 40)
		st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
		opts := eventlog.Options{MaxEntityRows: 1 + int(seed*7%50), BlockBytes: 1 + int(seed*1000), Seed: seed}
		m := openMachine(t, st, 0, opts)
		var flying *eventlog.Batch
		for range 1500 {
			id, c, want := src.next()
			checkVerdict(t, apply1(m, id, c), want)
			switch src.rng.IntN(12) {
			case 0:
				if flying == nil {
					if flying = m.TakeBatch(); flying == nil {
						t.Fatal("nothing to flush after an entry")
					}
				}
			case 1:
				if flying != nil {
					if err := flying.Write(st); err != nil {
						t.Fatal(err)
					}
					m.MarkFlushed(flying)
					flying = nil
					verifyStore(t, st)
				}
			}
			if src.rng.IntN(100) == 0 {
				checkMachine(t, m, src.model, src.rng)
			}
		}
		checkMachine(t, m, src.model, src.rng)
		if flying != nil {
			if err := flying.Write(st); err != nil {
				t.Fatal(err)
			}
			m.MarkFlushed(flying)
		}
		flush(t, m, st)
		checkMachine(t, m, src.model, src.rng)
		verifyStore(t, st)
	}
	if recentSkips.Load() == 0 {
		t.Error("no entity without events had more records than were wanted")
	}
}
