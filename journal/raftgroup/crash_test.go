package raftgroup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

func appResp(from, to, term uint64) *pb.Message {
	return &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(from), To: new(to), Term: new(term), Index: new(uint64(1))}
}

// lonely is a node with a driver and no goroutine.
type lonely struct {
	fs      *disktest.Crashable
	log     *wal.Log
	machine *machine
	sink    *sink
	driver  *Driver
	rec     *recovery.Recovered
}

func (n *lonely) open() error {
	log, err := wal.Open(n.fs, "wal", wal.Options{SegmentBytes: 8 << 10, Rand: func() uint64 { return 3 }})
	if err != nil {
		return err
	}
	rec, err := recovery.Recover(log)
	if err != nil {
		return err
	}
	if rec.Watermark > n.machine.mark {
		return fmt.Errorf("watermark %d of the log is ahead of %d", rec.Watermark, n.machine.mark)
	}
	n.machine = n.machine.reopen(rec.Watermark)
	n.log, n.rec, n.sink = log, rec, newSink()
	n.driver, err = NewDriver(rec, Options{Log: log, Machine: n.machine, Sink: n.sink, AppliedIndex: n.machine.index, MaxRecordBytes: 1 << 10, TruncateTicks: 1})
	return err
}

// work creates two groups and proposes to them, truncating the log in between,
// until the power cut. It returns the applied entries.
func (n *lonely) work() error {
	if len(n.rec.Groups) == 0 {
		if err, _ := n.driver.Create(one(1, 2)); err != nil {
			return err
		}
	}
	for round := range 6 {
		for n.driver.Core().HasWork() {
			if err := n.driver.Turn(); err != nil {
				return err
			}
		}
		for _, s := range []sharding.ShardID{1, 2} {
			for i := range 4 {
				data := fmt.Appendf(nil, "%d/%d/%d/%0300d", len(n.rec.Groups), round, i, 0)
				if err := n.driver.Core().Propose(s, n.sink.leader(s).Term, uint64(i), data); err != nil {
					return err
				}
			}
		}
		for n.driver.Core().HasWork() {
			if err := n.driver.Turn(); err != nil {
				return err
			}
		}
		if round%2 == 1 {
			n.machine.flush()
		}
		if err := n.driver.Tick(); err != nil {
			return err
		}
	}
	return nil
}

// TestAppliedEntriesSurvivePowerCutAtEveryWrite cuts the power at each disk operation in turn.
// Everything that was applied, and so may have been acknowledged, is in the log
// after the restart, in the same order.
func TestAppliedEntriesSurvivePowerCutAtEveryWrite(t *testing.T) {
	cuts := 0
	for at := 0; ; at++ {
		for seed := range uint64(3) {
			n := &lonely{fs: disktest.NewCrashable(rand.New(rand.NewPCG(uint64(at), seed))), machine: newMachine()}
			n.fs.CutAfter(at)
			err := n.open()
			if err == nil {
				err = n.work()
			}
			if err == nil {
				if at < 60 {
					t.Fatalf("only %d operations of the disk", at)
				}
				t.Logf("%d power cuts at %d places", cuts, at)
				return
			}
			cuts++
			acked := map[sharding.ShardID][]string{1: n.machine.data(1), 2: n.machine.data(2)}
			n.fs.Crash()
			if err := n.open(); err != nil {
				t.Fatalf("cut at operation %d, seed %d: %v", at, seed, err)
			}
			if err := n.work(); err != nil {
				t.Fatalf("cut at %d: after the restart: %v", at, err)
			}
			for s, want := range acked {
				got := n.machine.data(s)
				if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
					t.Fatalf("cut at operation %d, seed %d: shard %d has %d of %d", at, seed, s, len(got), len(want))
				}
			}
			if len(n.machine.faults) > 0 {
				t.Fatal(n.machine.faults)
			}
		}
	}
}

// TestIdleGroupDoesNotPinSegments: the entries of an idle group that the machine
// does not report as durable are rewritten at the end of the log.
func TestIdleGroupDoesNotPinSegments(t *testing.T) {
	n := &lonely{fs: disktest.NewCrashable(rand.New(rand.NewPCG(1, 1))), machine: newMachine()}
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	if err := n.work(); err != nil {
		t.Fatal(err)
	}
	frozen := n.machine.durable[1]
	for i := range 3 {
		n.driver.Core().Propose(1, n.sink.leader(1).Term, 1, fmt.Append(nil, "idle ", i))
	}
	if err := n.driver.Turn(); err != nil {
		t.Fatal(err)
	}
	idle := slices.Clone(n.machine.data(1))
	for range 200 {
		n.driver.Core().Propose(2, n.sink.leader(2).Term, 1, make([]byte, 900))
		for n.driver.Core().HasWork() {
			if err := n.driver.Turn(); err != nil {
				t.Fatal(err)
			}
		}
		n.machine.flush()
		n.machine.durable[1] = frozen // also in the flush that was just recorded
		if err := n.driver.Tick(); err != nil {
			t.Fatal(err)
		}
	}
	if segments := n.log.Segments(); len(segments) > 12 || segments[0].Number == 1 {
		t.Fatalf("%d segments kept, the first is %d", len(segments), segments[0].Number)
	}
	n.fs.Crash()
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	for n.driver.Core().HasWork() {
		if err := n.driver.Turn(); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.machine.data(1); !slices.Equal(got, idle) {
		t.Fatalf("the idle group has %d entries of %d", len(got), len(idle))
	}
}

// TestMembershipIsWrittenBeforeWatermark: a change that the machine applied
// durably is not applied again after a restart, so the log must contain it.
func TestMembershipIsWrittenBeforeWatermark(t *testing.T) {
	n := &lonely{fs: disktest.NewCrashable(rand.New(rand.NewPCG(1, 1))), machine: newMachine()}
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	if err := n.work(); err != nil {
		t.Fatal(err)
	}
	core := n.driver.Core()
	if err := core.ChangeMembers(1, n.sink.leader(1).Term, Change{AddLearners: wire.ReplicaIDs([]uint64{55})}); err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Turn(); err != nil {
		t.Fatal(err)
	}
	n.machine.flush()
	if err := n.driver.Tick(); err != nil {
		t.Fatal(err)
	}
	n.fs.Crash()
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	for n.driver.Core().HasWork() {
		if err := n.driver.Turn(); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := n.driver.Core().Status(1); err != nil || len(s.Learners) != 1 {
		t.Fatalf("after the restart: %+v, %v", s, err)
	}
}
