package raftgroup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// stop reports to a node that its replica of a shard has stopped.
func (n *drilled) stop(shard int, why sharding.StopReason) {
	core := n.driver.Core()
	core.replicaStopped(StoppedReplica{Shard: sharding.ShardID(shard), Generation: core.groups[sharding.ShardID(shard)].generation, Reason: why})
	n.d.settle()
}

var reasons = []sharding.StopReason{sharding.StopUnsupported, sharding.StopDamaged}

// TestStoppedLeaderTransfersLeadership: a stopped leader transfers its
// leadership at once, and accepts no proposals or reads until then.
func TestStoppedLeaderTransfersLeadership(t *testing.T) {
	for _, why := range reasons {
		d := newDrill(t, 3, 1)
		d.until("leader", 60, func() bool { return d.led(1) })
		n := d.lead(1, 0)
		d.write(1, "before", 0, 1, 2)
		term := n.sink.leader(1).Term
		core := n.driver.Core()
		core.replicaStopped(StoppedReplica{Shard: 1, Reason: why})
		if err := core.Propose(1, term, 7, []byte("late")); err != nil {
			t.Fatal(err)
		}
		if err := core.ReadIndex(1, 70); err != nil {
			t.Fatal(err)
		}
		d.settle()
		if n.sink.leader(1).Self {
			t.Fatalf("%v: a replica that has stopped says that it leads", why)
		}
		if drops := n.sink.drops(); len(drops) != 1 || !errors.Is(drops[0].Err, ErrNotLeader) {
			t.Errorf("%v: a proposal is not dropped: %+v", why, drops)
		}
		if r, ok := n.sink.read(70); !ok || !errors.Is(r.Err, ErrNotLeader) {
			t.Errorf("%v: a read is not refused: %+v", why, r)
		}
		if beats := d.until("another leader", 3, func() bool { l := d.leader(1); return l != nil && l != n }); beats > 1 {
			t.Errorf("%v: %d beats until another led", why, beats)
		}
		d.write(1, "after", 1, 2)
		if slices.Contains(d.nodes[1].machine.data(1), "late") {
			t.Errorf("%v: a replica that has stopped took a proposal", why)
		}
		if st, err := core.Status(1); err != nil || st.Self || st.Stopped != why {
			t.Errorf("%v: status %+v, %v", why, st, err)
		}
		if s := core.Stats(); s.Stopped != 1 || s.Leading != 0 {
			t.Errorf("%v: %+v", why, s)
		}
	}
}

// TestStoppedReplicaIsNeverElected: the stopped replica has the newest log, and
// only one other replica is left. That other replica leads, with the vote and
// the log entries of the stopped replica.
func TestStoppedReplicaIsNeverElected(t *testing.T) {
	d := newDrill(t, 3, 8)
	d.until("leaders", 60, func() bool { return d.led(8) })
	for s := 1; s <= 8; s++ {
		d.lead(s, 1)
		d.nodes[0].stop(s, sharding.StopUnsupported)
		if err := d.nodes[1].driver.Core().TransferLeader(sharding.ShardID(s), d.replica(s, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for range 15 {
		d.beat()
		for s := 1; s <= 8; s++ {
			if at := d.leader(s); at != d.nodes[1] {
				t.Fatalf("shard %d is not led by node 1 any more", s)
			}
		}
	}
	d.nodes[1].up = false
	d.until("leaders", 60, func() bool {
		for s := 1; s <= 8; s++ {
			if d.leader(s) != d.nodes[2] {
				return false
			}
		}
		return true
	})
	for s := 1; s <= 8; s++ {
		d.write(s, "with one whole replica", 2)
		d.nodes[0].driver.Core().campaignNow([]sharding.ShardID{sharding.ShardID(s)})
	}
	for range 40 {
		d.beat()
		for s := 1; s <= 8; s++ {
			if d.leader(s) != d.nodes[2] {
				t.Fatalf("shard %d has lost its leader", s)
			}
		}
	}
}

// TestDamagedReplicaSendsNothing: a damaged replica sends neither votes nor
// acknowledgments, so one healthy replica of three can neither lead nor commit.
// Once the third replica is back, the two healthy replicas can lead and commit.
func TestDamagedReplicaSendsNothing(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("leader", 60, func() bool { return d.led(1) })
	d.lead(1, 1)
	d.write(1, "before", 0, 1, 2)
	d.nodes[0].stop(1, sharding.StopDamaged)
	sent := d.nodes[0].sent
	d.write(1, "two are enough", 1, 2)
	d.until("the leader misses it, and it alone", 60, func() bool {
		st, err := d.nodes[1].driver.Core().Status(1)
		return err == nil && st.Self && slices.Equal(st.Inactive, []sharding.ReplicaID{d.replica(1, 0)})
	})
	d.nodes[1].up = false
	for range 60 {
		d.beat()
	}
	if at := d.leader(1); at != nil {
		t.Fatalf("node %d leads by the vote of a damaged replica", at.i)
	}
	if n := d.nodes[0].sent - sent; n != 0 {
		t.Errorf("a damaged replica sent %d frames", n)
	}
	d.nodes[1].up = true
	d.nodes[1].restart()
	d.until("leader", 60, func() bool { return d.led(1) })
	d.write(1, "after", 1, 2)
	if got := d.nodes[0].machine.data(1); got[len(got)-1] != "before" {
		t.Errorf("a damaged replica took %q", got)
	}
}

// TestGroupOfStoppedReplicasHasNoLeader: the last leader steps down and wakes
// the other replicas.
func TestGroupOfStoppedReplicasHasNoLeader(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("leader", 60, func() bool { return d.led(1) })
	for _, n := range d.nodes {
		n.stop(1, sharding.StopUnsupported)
	}
	for range 80 {
		d.beat()
		if at := d.leader(1); at != nil {
			t.Fatalf("node %d leads", at.i)
		}
	}
}

// TestStoppedSoleReplicaReportsNoQuorum: a stopped sole replica reports that
// there is no quorum, so that callers get an answer. It never leads again in
// this generation.
func TestStoppedSoleReplicaReportsNoQuorum(t *testing.T) {
	for _, why := range reasons {
		d := newEmptyDrill(t, 1)
		n := d.nodes[0]
		n.create(GroupConfig{Shard: 1, Replica: 10, Voters: []sharding.ReplicaID{10}})
		d.until("leader", 10, func() bool { return d.led(1) })
		n.stop(1, why)
		for range 30 {
			d.beat()
			if n.sink.leader(1).Self || n.sink.quorum(1) {
				t.Fatalf("%v: leads %v, quorum %v", why, n.sink.leader(1).Self, n.sink.quorum(1))
			}
		}
	}
}

// TestLaterGenerationIsNotStopped: a report about an earlier generation does
// not affect the current generation, and StopDamaged overrides StopUnsupported.
func TestLaterGenerationIsNotStopped(t *testing.T) {
	d := newDrill(t, 3, 1)
	core := d.nodes[0].driver.Core()
	g := core.groups[1]
	g.generation = 4
	core.replicaStopped(StoppedReplica{Shard: 1, Generation: 3, Reason: sharding.StopDamaged})
	core.replicaStopped(StoppedReplica{Shard: 9, Generation: 4, Reason: sharding.StopDamaged})
	if g.stopped != sharding.NotStopped {
		t.Fatal("the generation before has stopped this one")
	}
	for _, why := range []sharding.StopReason{sharding.StopUnsupported, sharding.StopDamaged, sharding.StopUnsupported} {
		core.replicaStopped(StoppedReplica{Shard: 1, Generation: 4, Reason: why})
	}
	if g.stopped != sharding.StopDamaged || len(core.stopped.groups) != 1 {
		t.Fatalf("stopped as %v, %d times", g.stopped, len(core.stopped.groups))
	}
	(func(g *group) { g.reset(); core.stopped.remove(g) })(g)
	if g.stopped != sharding.NotStopped || len(core.stopped.groups) != 0 {
		t.Fatal("a new generation has stopped")
	}
}

// TestLogOfStoppedReplicaIsBounded: a stopped replica whose log has reached the
// bound accepts no entries, but still votes.
func TestLogOfStoppedReplicaIsBounded(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("leader", 60, func() bool { return d.led(1) })
	d.lead(1, 1)
	n := d.nodes[0]
	n.driver.core.opts.RetainTotalBytes = 20 << 10
	n.stop(1, sharding.StopUnsupported)
	for i := range 100 {
		d.write(1, fmt.Sprintf("%d %01000d", i, 0), 1, 2)
	}
	if kept := n.driver.core.groups[1].log.Bytes(); kept < 19<<10 || kept > 40<<10 {
		t.Errorf("a replica that has stopped holds %d bytes", kept)
	}
	before := n.driver.core.groups[1].hard.Term
	n.driver.core.Step("n2", wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgVote.Enum(), From: new(uint64(12)), To: new(uint64(10)),
		Term: new(before + 9), LogTerm: new(before + 8), Index: new(uint64(1000)), Context: []byte("CampaignTransfer")}})
	d.settle()
	if h := n.driver.core.groups[1].hard; h.Term != before+9 || h.Vote != 12 {
		t.Errorf("it did not vote: %+v", h)
	}
}

// TestStoppedReplicaDoesNotPinSegments: the entries of a stopped replica, which
// do not fit into one record, are rewritten at the end of the log. A power cut
// during the rewrite loses none of them.
func TestStoppedReplicaDoesNotPinSegments(t *testing.T) {
	for cut := range 40 {
		n := &lonely{fs: disktest.NewCrashable(rand.New(rand.NewPCG(1, uint64(cut)))), machine: newMachine()}
		if err := n.open(); err != nil {
			t.Fatal(err)
		}
		if err := n.work(); err != nil {
			t.Fatal(err)
		}
		frozen := n.machine.durable[1]
		for i := range 60 {
			n.driver.Core().Propose(1, n.sink.leader(1).Term, 1, fmt.Appendf(nil, "stopped %d %0900d", i, 0))
			if err := n.driver.Turn(); err != nil {
				t.Fatal(err)
			}
		}
		want := slices.Clone(n.machine.data(1))
		if size, record := n.driver.core.groups[1].log.Bytes(), n.driver.core.opts.MaxRecordBytes; size < 2*int64(record) {
			t.Fatalf("the log has %d bytes, a record %d", size, record)
		}
		n.driver.Core().replicaStopped(StoppedReplica{Shard: 1, Generation: n.driver.core.groups[1].generation, Reason: sharding.StopDamaged})
		n.fs.CutAfter(300 + 37*cut)
		for range 300 {
			n.driver.Core().Propose(2, n.sink.leader(2).Term, 1, make([]byte, 900))
			var err error
			for err == nil && n.driver.Core().HasWork() {
				err = n.driver.Turn()
			}
			n.machine.flush()
			n.machine.durable[1] = frozen // also in the flush that was just recorded
			if err == nil {
				err = n.driver.Tick()
			}
			if err != nil {
				break
			}
		}
		if segments := n.log.Segments(); len(segments) > 40 {
			t.Fatalf("%d segments kept, the first is %d", len(segments), segments[0].Number)
		}
		n.fs.Crash()
		if err := n.open(); err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		for n.driver.Core().HasWork() {
			if err := n.driver.Turn(); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.machine.data(1); !slices.Equal(got, want) {
			t.Fatalf("cut %d: the replica has %d entries of %d", cut, len(got), len(want))
		}
	}
}
