package replicas_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// problems verifies a stopped node at the durable index in its log.
func problems(t *testing.T, n *node) []store.DamageError {
	t.Helper()
	log, err := wal.Open(n.fs, "wal", wal.Options{SegmentBytes: 256 << 10, Rand: func() uint64 { return 5 }})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recovery.Recover(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	generations := rec.Generations(n.fs, "snapshots")
	cuts := map[sharding.ShardID]uint64{}
	for _, g := range rec.Groups {
		cuts[g.Shard] = g.TruncatedIndex
	}
	n.starts++ // a copy, because opening a store may repair the effects of a crash
	copyStore(t, filepath.Join(n.base, fmt.Sprint("store", n.starts-1)), n.dir())
	r, err := store.VerifyDir(t.Context(), n.dir(), rec.Watermark, store.Options{MemTableBytes: memTable, Leftover: eventlog.Leftovers(generations)})
	if err != nil {
		t.Fatal(err)
	}
	return append(r.Problems, eventlog.VerifyGenerations(r, generations, cuts)...)
}

// TestVerifyAcceptsGenerations checks that a snapshot is valid both before and
// after it is installed, and that a generation without its file or without an
// applied index is reported.
func TestVerifyAcceptsGenerations(t *testing.T) {
	for _, settled := range []bool{false, true} {
		w, l, n := lagging(t, 50, 1, 40)
		w.until("the record", func() bool { return w.sent > 0 })
		if settled {
			l.settle(n)
			w.until("the file's end", func() bool { return len(n.files()) == 0 })
		}
		n.crash()
		if found := problems(t, n); len(found) > 0 {
			t.Errorf("settled %v: %v", settled, found)
		}
		if files := n.files(); !settled {
			path := filepath.Join("snapshots", files[0])
			data, err := disk.ReadFile(n.fs, path)
			if err != nil {
				t.Fatal(err)
			}
			data[100] ^= 1
			if err := disk.WriteFileAtomic(n.fs, path, data); err != nil {
				t.Fatal(err)
			}
			if found := problems(t, n); len(found) != 1 {
				t.Errorf("a damaged snapshot: %v", found)
			}
			if err := n.fs.Remove(path); err != nil {
				t.Fatal(err)
			}
			if found := problems(t, n); len(found) != 1 {
				t.Errorf("a missing snapshot: %v", found)
			}
		}
	}
}
