package eventlog_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// builtStore creates a store with finished tables and a memtable log, as after
// the process was killed, and returns the log that it was built from.
func builtStore(t *testing.T, seed, until uint64) (dir string, watermark uint64, log []logged, src *source) {
	t.Helper()
	src = newSource(seed, 2, 30)
	base := t.TempDir()
	run := &journalRun{t: t, dir: filepath.Join(base, "live")}
	run.open(0)
	if err := run.m.SetRecoveryTargets(nil); err != nil {
		t.Fatal(err)
	}
	for run.st.Watermark() < until {
		for range 40 {
			id, c, want := src.next()
			log = append(log, logged{id, c, want})
			checkVerdict(t, apply1(run.m, id, c), want)
		}
		flush(t, run.m, run.st)
	}
	run.cut()
	dir = filepath.Join(base, "copy")
	copyStore(t, run.dir, dir)
	closeRun(t, run)
	return dir, run.recorded[len(run.recorded)-1], log, src
}

func flip(t *testing.T, name string, rng *rand.Rand) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	used := len(data)
	for used > 1 && data[used-1] == 0 {
		used--
	}
	data[rng.IntN(used)] ^= 1 << rng.IntN(8)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// If a bit is flipped in any file of a stopped store, the damage is either
// detected and named, or is in data that the log restores.
func TestFlippedBitsAreDetectedOrRepaired(t *testing.T) {
	good, watermark, log, src := builtStore(t, 1, 8)
	kinds := []string{"*.sst", "*.sst", "*.mem", "MANIFEST"}
	refused := make(map[string]int)
	for n := range 4 * *seeds {
		kind := kinds[n%len(kinds)]
		r := &journalRun{t: t, dir: filepath.Join(t.TempDir(), "store")}
		copyStore(t, good, r.dir)
		names, err := filepath.Glob(filepath.Join(r.dir, kind))
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s: %v", kind, err)
		}
		flip(t, names[src.rng.IntN(len(names))], src.rng)
		opts := smallStore
		opts.Watermark = watermark
		st, err := store.Open(r.dir, opts)
		if err != nil {
			if kind == "*.mem" || !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%s: %v", kind, err)
			}
			refused[kind]++
			continue
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		r.open(watermark)
		if err := r.m.SetRecoveryTargets(logEnds(log)); err != nil {
			t.Fatal(err)
		}
		r.replay(log, src.rng)
		checkMachine(t, r.m, src.model, src.rng)
		closeRun(t, r)
	}
	if refused["*.sst"] == 0 || refused["MANIFEST"] == 0 {
		t.Fatalf("refused %v", refused)
	}
}

// Data damaged in an open store is never served: a read returns the right
// records or reports damage, also for an entity whose row is not in memory.
func TestBitsFlippedInOpenStoreAreNotServed(t *testing.T) {
	// Replay reads through the cache, so the tables must be larger than the
	// cache.
	damaged := 0
	good, watermark, log, src := builtStore(t, 2, 40)
	for range 4 * *seeds {
		r := &journalRun{t: t, dir: filepath.Join(t.TempDir(), "store")}
		copyStore(t, good, r.dir)
		r.st = openStore(t, r.dir, smallStore)
		m, err := eventlog.Open(r.st, watermark, eventlog.Options{MaxEntityRows: 1})
		if err != nil {
			t.Fatal(err)
		}
		r.m, r.recorded, r.durable = m, []uint64{watermark}, make(map[sharding.ShardID]uint64)
		r.replay(log, src.rng)
		tables, err := filepath.Glob(filepath.Join(r.dir, "*.sst"))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			flipInPlace(t, tables[src.rng.IntN(len(tables))], src.rng)
		}
		for id, sh := range src.model.shards {
			for e, want := range sh.entities {
				damaged += readDamaged(t, r.m, id, e, want)
			}
		}
		closeRun(t, r)
	}
	if damaged == 0 {
		t.Fatal("no flip hit anything")
	}
}

// flipInPlace changes one byte without truncating the file, which is mapped.
func flipInPlace(t *testing.T, name string, rng *rand.Rand) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if fi.Size() < 2 {
		return // compaction is removing it
	}
	b := make([]byte, 1)
	// The last third contains the index, which a running Badger trusts.
	at := rng.Int64N(fi.Size() * 2 / 3)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// readDamaged returns 1 if the read reports damage. Correct records before the
// damage are fine, and a read that reports no damage must return all records.
func readDamaged(t *testing.T, m *eventlog.Machine, id sharding.ShardID, e sharding.EntityID, want *modelEntity) int {
	t.Helper()
	i := want.cut
	err := m.Read(t.Context(), id, e, want.gone(), func(at journal.Position, rec *journal.Record) error {
		if at != want.at[i] || string(journal.AppendRecord(nil, rec)) != string(want.records[i]) {
			t.Fatalf("served a wrong record of %s at %v", e, at)
		}
		i++
		return nil
	})
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported) {
		return 1
	}
	if err != nil || i != len(want.records) {
		t.Fatalf("read %s: %d of %d records and %v", e, i, len(want.records), err)
	}
	return 0
}

// Verify names the wrong rows in a store that Badger considers intact.
func TestVerifyFindsChangedRows(t *testing.T) {
	good, watermark, log, src := builtStore(t, 3, 3)
	run := &journalRun{t: t, dir: good}
	run.open(watermark)
	run.replay(log, src.rng)
	flush(t, run.m, run.st)
	verifyStore(t, run.st)
	closeRun(t, run)

	for class := range map[store.Class]bool{store.ClassApplied: true, store.ClassEntity: true, store.ClassOrder: true, store.ClassRecord: true} {
		dir := filepath.Join(t.TempDir(), "store")
		copyStore(t, good, dir)
		st := openStore(t, dir, smallStore)
		dropOne(t, st, class)
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := store.VerifyDir(t.Context(), dir, store.Latest, smallStore)
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(r.Err(), journal.ErrDamaged) {
			t.Errorf("a missing pair of class %c is not seen: %+v", class, r)
		}
	}
	dir := filepath.Join(t.TempDir(), "store")
	copyStore(t, good, dir)
	r, err := store.VerifyDir(t.Context(), dir, store.Latest, smallStore)
	if err != nil || r.Err() != nil {
		t.Errorf("untouched: %v %v", err, r.Err())
	}
}

// dropOne deletes one pair of the class in shard 1.
func dropOne(t *testing.T, st *store.Store, class store.Class) {
	t.Helper()
	view, err := st.ViewAt(st.MaxVersion())
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	err = view.Scan(store.AppendPrefix(nil, 1, 0, class), nil, func(key, _ []byte) error {
		b.Delete(append([]byte{}, key...))
		return store.ErrStop
	})
	view.Close()
	if err != nil || b.Len() != 1 {
		t.Fatal(err, b.Len())
	}
	if err := st.Write(&b, st.MaxVersion()+1); err != nil {
		t.Fatal(err)
	}
}
