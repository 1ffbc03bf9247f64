package raftgroup

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

func TestSingleReplicaCommitsAndRestarts(t *testing.T) {
	n := newSingle(t, Options{})
	if err := n.loop.CreateGroups(one(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	var want [4][]string
	for round := range 4 {
		for _, shard := range []sharding.ShardID{1, 2, 3} {
			term := n.lead(shard)
			for i := range 10 {
				data := fmt.Sprintf("%d/%d/%d", shard, round, i)
				want[shard] = append(want[shard], data)
				if err := n.loop.Propose(shard, term, uint64(i), []byte(data)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, shard := range []sharding.ShardID{1, 2, 3} {
			eventually(t, "commit", func() bool { return slices.Equal(n.machine.data(shard), want[shard]) })
		}
		if round == 1 {
			n.machine.flush()
		}
		if round%2 == 0 {
			n.crash()
		} else {
			n.stop()
		}
		n.start()
	}
	for _, shard := range []sharding.ShardID{1, 2, 3} {
		n.lead(shard)
		eventually(t, "recovery", func() bool { return slices.Equal(n.machine.data(shard), want[shard]) })
	}
	if len(n.machine.faults) > 0 || len(n.sink.drops()) > 0 {
		t.Fatal(n.machine.faults, n.sink.drops())
	}
	n.stop()
}

func TestProposalsAreFenced(t *testing.T) {
	n := newSingle(t, Options{})
	if err := n.loop.CreateGroups(one(1)); err != nil {
		t.Fatal(err)
	}
	term := n.lead(1)
	n.stop()
	n.start()
	now := n.lead(1)
	if now <= term {
		t.Fatalf("term %d after a restart from %d", now, term)
	}
	tests := []struct {
		shard sharding.ShardID
		fence sharding.Term
		err   error
	}{{1, term, ErrFenced}, {1, now + 1, ErrFenced}, {9, now, ErrUnknownShard}}
	for i, tt := range tests {
		if err := n.loop.Propose(tt.shard, tt.fence, uint64(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "drop", func() bool { return len(n.sink.drops()) == i+1 })
		if d := n.sink.drops()[i]; !errors.Is(d.Err, tt.err) || d.Proposal != uint64(i) || d.Fence != tt.fence {
			t.Errorf("shard %d fence %d: dropped as %+v", tt.shard, tt.fence, d)
		}
	}
	if err := n.loop.Propose(1, now, 9, []byte("good")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "commit", func() bool { return slices.Equal(n.machine.data(1), []string{"good"}) })
	n.stop()
}

func TestReadIndexWaitsForAnEntryOfTheTerm(t *testing.T) {
	n := newSingle(t, Options{})
	if err := n.loop.CreateGroups(one(1)); err != nil {
		t.Fatal(err)
	}
	n.loop.Propose(1, n.lead(1), 1, []byte("before"))
	eventually(t, "commit", func() bool { return len(n.machine.data(1)) == 1 })
	last := n.machine.index(1)
	n.crash()
	n.start()
	if err := n.loop.ReadIndex(1, 42); err != nil {
		t.Fatal(err)
	}
	eventually(t, "answer", func() bool { _, ok := n.sink.read(42); return ok })
	r, _ := n.sink.read(42)
	// A read fails if it was requested before this replica's leadership. A read
	// that was requested during the leadership covers every earlier commit and
	// the no-op.
	if r.Err == nil && r.Index <= last || r.Err != nil && !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("read after a restart: %+v, last index %d", r, last)
	}
	n.lead(1)
	n.loop.ReadIndex(1, 43)
	eventually(t, "answer", func() bool { _, ok := n.sink.read(43); return ok })
	if r, _ := n.sink.read(43); r.Err != nil || r.Index != last+1 {
		t.Fatalf("read: %+v, want index %d", r, last+1)
	}
	n.stop()
}

func TestLogIsTruncatedUpToTheDurableIndex(t *testing.T) {
	n := newSingle(t, Options{TruncateTicks: 1})
	if err := n.loop.CreateGroups(one(1, 2)); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1000)
	propose := func(count int) {
		term := n.lead(1)
		at := n.machine.index(1)
		for i := range count {
			if err := n.loop.Propose(1, term, uint64(i), data); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "commit", func() bool { return n.machine.index(1) == at+uint64(count) })
	}
	propose(500)
	before := len(n.log.Segments())
	if before < 8 {
		t.Fatalf("%d segments of 64 KiB for 500 KB", before)
	}
	n.machine.flush()
	n.ticker <- time.Time{}
	n.ticker <- time.Time{} // when the loop receives the second tick, it has handled the first
	s, err := n.loop.Status(1)
	if err != nil || s.First != s.Applied+1 || s.Bytes != 0 {
		t.Fatalf("after the cut: %+v, %v", s, err)
	}
	if got := len(n.log.Segments()); got > 1 {
		t.Fatalf("%d segments left of %d", got, before)
	}
	propose(20)
	n.crash()
	n.start()
	if g := n.rec.Groups[0]; g.TruncatedIndex != s.Applied || g.LastIndex < g.TruncatedIndex+20 || n.rec.Watermark != 1 {
		t.Fatalf("recovered %+v, watermark %d, cut was %d", g, n.rec.Watermark, s.Applied)
	}
	n.lead(1)
	n.lead(2)
	if got := len(n.machine.data(1)); got != 520 {
		t.Fatalf("%d proposals after the restart, want 520", got)
	}
	n.stop()
}

func TestLogErrorStopsTheLoop(t *testing.T) {
	n := newSingle(t, Options{})
	if err := n.loop.CreateGroups(one(1)); err != nil {
		t.Fatal(err)
	}
	term := n.lead(1)
	at := n.machine.index(1)
	n.fs.FailSync(1, errors.New("the disk is gone"))
	if err := n.loop.Propose(1, term, 1, []byte("lost")); err != nil {
		t.Fatal(err)
	}
	if err := <-n.fatal; err == nil {
		t.Fatal("fatal without an error")
	}
	eventually(t, "stop", func() bool { return n.loop.Err() != nil })
	if err := n.loop.Propose(1, term, 2, []byte("late")); !errors.Is(err, ErrStopped) {
		t.Fatalf("propose after the end: %v", err)
	}
	if _, err := n.loop.Status(1); !errors.Is(err, ErrStopped) {
		t.Fatalf("status after the end: %v", err)
	}
	if n.machine.index(1) != at {
		t.Fatal("applied after the log failed")
	}
}

func TestBoundsRejectProposals(t *testing.T) {
	n := newSingle(t, Options{MaxEntryBytes: 100, MaxBacklogBytes: 10})
	if err := n.loop.CreateGroups(one(1)); err != nil {
		t.Fatal(err)
	}
	term := n.lead(1)
	if err := n.loop.Propose(1, term, 1, make([]byte, 101)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if err := n.loop.Propose(1, term, 2, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	n.lead(1)
	n.machine.backlog = 11
	if err := n.loop.Propose(1, term, 3, nil); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	n.lead(1)
	n.stop()
}

func TestCreateGroupsTwiceFails(t *testing.T) {
	n := newSingle(t, Options{})
	if err := n.loop.CreateGroups(one(1, 2)); err != nil {
		t.Fatal(err)
	}
	for _, configs := range [][]GroupConfig{one(2), one(3, 3)} {
		if err := n.loop.CreateGroups(configs); !errors.Is(err, ErrGroupExists) {
			t.Errorf("create %v: %v", configs, err)
		}
	}
	if err := n.loop.CreateGroups([]GroupConfig{{Shard: 4, Replica: 5}}); err == nil {
		t.Error("a group without voters was created")
	}
	n.lead(1)
	n.lead(2)
	n.stop()
}
