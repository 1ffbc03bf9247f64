package raftlog

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	pb "go.etcd.io/raft/v3/raftpb"
)

// TestCatchUpFileMatchesUntruncatedLog compares a log whose first part is in a
// catch-up file with a log that was never truncated: all reads return the same
// results.
func TestCatchUpFileMatchesUntruncatedLog(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		files := snapdir.New(disktest.NewCrashable(rng), "snapshots", nil, nil)
		if err := files.Clear(nil); err != nil {
			t.Fatal(err)
		}
		whole := New(100, 3)
		cut := New(100, 3)
		term := uint64(3)
		add := func(n int) {
			for range n {
				if rng.IntN(8) == 0 {
					term += rng.Uint64N(3)
				}
				e := &pb.Entry{Index: new(whole.Last() + 1), Term: new(term), Data: fmt.Appendf(nil, "%d", rng.Uint64())}
				if rng.IntN(10) == 0 {
					e.Type = pb.EntryConfChangeV2.Enum()
				}
				whole.Append([]*pb.Entry{e})
				cut.Append([]*pb.Entry{e})
			}
		}
		add(20)
		first := 100 + rng.Uint64N(10)
		at, err := cut.Term(first)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			to := max(cut.cut, first) + rng.Uint64N(cut.Last()-max(cut.cut, first))
			if to = max(to, first+1); cut.catchUp != nil {
				to = max(to, cut.catchUp.last())
			}
			if err := cut.SaveCatchUp(files, "one.catchup", first, to); err != nil {
				t.Fatal(err)
			}
			if got := cut.catchUp.last(); got != to {
				t.Fatalf("seed %d: entries up to %d are kept, want %d", seed, got, to)
			}
			last, err := cut.Term(to)
			if err != nil {
				t.Fatal(err)
			}
			cut.Compact(to, last)
			add(10)
			if got, _ := cut.FirstIndex(); got != first+1 {
				t.Fatalf("seed %d: the log begins at %d, want %d", seed, got, first+1)
			}
			for range 30 {
				lo := first + 1 + rng.Uint64N(cut.Last()-first)
				hi := lo + 1 + rng.Uint64N(cut.Last()+1-lo)
				size := rng.Uint64N(400)
				want, _ := whole.Entries(lo, hi, 1<<30)
				got, err := cut.Entries(lo, hi, size)
				if err != nil || len(got) == 0 {
					t.Fatalf("seed %d: entries %d to %d: %v", seed, lo, hi, err)
				}
				for i, e := range got {
					w := want[i]
					if e.GetIndex() != w.GetIndex() || e.GetTerm() != w.GetTerm() || e.GetType() != w.GetType() || string(e.GetData()) != string(w.GetData()) {
						t.Fatalf("seed %d: entry %d is %v, want %v", seed, lo+uint64(i), e, w)
					}
				}
				wantTerm, _ := whole.Term(lo)
				if got, err := cut.Term(lo); err != nil || got != wantTerm {
					t.Fatalf("seed %d: term of %d is %d, want %d: %v", seed, lo, got, wantTerm, err)
				}
			}
		}
		if _, err := cut.Entries(first, first+1, 100); err == nil {
			t.Fatalf("seed %d: an entry from before the file was read", seed)
		}
		if got, err := cut.Term(first); err != nil || got != at {
			t.Fatalf("seed %d: the term before the file is %d, want %d: %v", seed, got, at, err)
		}
		cut.DropCatchUp()
		if names, _ := files.Names(); len(names) != 0 {
			t.Fatalf("seed %d: files %v are left", seed, names)
		}
	}
}
