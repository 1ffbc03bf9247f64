package eventlog_test

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// waitFor waits for a condition that another goroutine brings about.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// Durable returns the raft index that each shard had reached at the returned
// durable index. The test compares the result with the indexes noted at every
// version, because Durable skips versions.
func TestDurableFollowsTheWatermark(t *testing.T) {
	src := newSource(9, 3, 30)
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	history := []map[sharding.ShardID]uint64{{}} // raft index of each shard at each version
	dst := make(map[sharding.ShardID]uint64)
	if w := m.Durable(dst); w != 0 || len(dst) != 0 {
		t.Fatalf("nothing is durable: %d %v", w, dst)
	}
	last, moves := uint64(0), 0
	for range 300 {
		for range 12 {
			id, c, want := src.next()
			checkVerdict(t, apply1(m, id, c), want)
		}
		flush(t, m, st)
		now := make(map[sharding.ShardID]uint64)
		for id := range src.model.shards {
			now[id], _ = m.Applied(id)
		}
		history = append(history, now)
		clear(dst)
		w := m.Durable(dst)
		if w < last || w >= uint64(len(history)) || !maps.Equal(dst, history[w]) {
			t.Fatalf("watermark %d after %d: %v, version held %v", w, last, dst, history[w])
		}
		if st.Discard() > last {
			t.Fatalf("versions below %d may go, the log has recorded %d", st.Discard(), last)
		}
		if w > last {
			moves++
		}
		last = w
	}
	if moves < 3 {
		t.Fatalf("the watermark moved %d times", moves)
	}
}

// A table that a starting process builds from the memtable log of the previous
// process does not prove that the later writes survived. So the durable index
// must not advance until the rollback of these writes is in a table too.
func TestWatermarkIgnoresRemainsOfCrash(t *testing.T) {
	src := newSource(10, 2, 30)
	base := t.TempDir()
	run := &journalRun{t: t, dir: filepath.Join(base, "live")}
	run.open(0)
	if err := run.m.SetRecoveryTargets(nil); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for range 4 {
			id, c, want := src.next()
			checkVerdict(t, apply1(run.m, id, c), want)
		}
		flush(t, run.m, run.st)
	}
	if run.st.Watermark() != 0 {
		t.Fatal("a table is finished already: nothing would be tested")
	}
	copyStore(t, run.dir, filepath.Join(base, "crashed"))
	closeRun(t, run)
	r := &journalRun{t: t, dir: filepath.Join(base, "crashed")}
	r.open(0)
	waitFor(t, "the replayed memtable becomes a table", func() bool { return r.st.Watermark() > 0 })
	if err := r.m.SetRecoveryTargets(nil); err != nil {
		t.Fatal(err)
	}
	apply1(r.m, 1, journal.Committed{Index: 1, Term: 1})
	flush(t, r.m, r.st)
	if w := r.m.Durable(r.durable); w != 0 || len(r.durable) != 0 {
		t.Fatalf("told watermark %d with %v, the store's is %d", w, r.durable, r.st.Watermark())
	}
}
