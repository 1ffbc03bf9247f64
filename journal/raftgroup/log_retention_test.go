package raftgroup

import (
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// pass runs the core's turns without a log. It sends the responses of replica
// 12, which acknowledges everything. Replica 13 does not respond.
func pass(t *testing.T, c *Core) {
	t.Helper()
	for range 100 {
		if !c.HasWork() {
			return
		}
		turn := c.beginTurn()
		out := append([]envelope(nil), turn.Early...)
		for p := c.records.nextTurn(); p != nil; p = c.records.nextTurn() {
			c.records.onAppended(wal.Position{Segment: 1})
		}
		c.finishTurn()
		for _, m := range append(out, turn.Late...) {
			if m.Raft.GetTo() == 12 {
				agree(c, m.Raft)
			}
		}
	}
	t.Fatal("never at rest")
}

func agree(c *Core, m *pb.Message) {
	r := &pb.Message{From: m.To, To: m.From, Term: m.Term}
	switch m.GetType() {
	case pb.MsgPreVote:
		r.Type = pb.MsgPreVoteResp.Enum()
	case pb.MsgVote:
		r.Type = pb.MsgVoteResp.Enum()
	case pb.MsgApp:
		r.Type, r.Index = pb.MsgAppResp.Enum(), new(m.GetIndex()+uint64(len(m.GetEntries())))
	default:
		return
	}
	c.Step("", wire.Message{Shard: 1, Raft: r})
}

// TestTruncationKeepsEntriesThatAFollowerLacks also covers the moment after raft lost a
// leadership that is not reported yet, when it no longer knows its followers'
// progress.
func TestTruncationKeepsEntriesThatAFollowerLacks(t *testing.T) {
	c, err := newCore(&recovery.Recovered{}, Options{RetainBytes: 1 << 30, Placement: placement{locate: nodeOf}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.finishCreate([]GroupConfig{{Shard: 1, Replica: 11, Voters: wire.ReplicaIDs([]uint64{11, 12, 13})}}); err != nil {
		t.Fatal(err)
	}
	g := c.groups[1]
	for range 40 {
		if !g.leader {
			c.tickAll()
			pass(t, c)
		}
	}
	if !g.leader {
		t.Fatal("not elected")
	}
	for i := range 5 {
		if err := c.Propose(1, sharding.Term(g.term), uint64(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, c)
	durable := map[sharding.ShardID]uint64{1: g.applied}
	cut := func(watermark uint64) uint64 {
		c.retention.truncateRecord(c.order, watermark, durable)
		c.retention.compact(c.order, wal.Position{Segment: 1, Offset: 1}, c.markDirty)
		return g.log.TruncatedIndex()
	}
	if g.applied != 6 || cut(1) != 0 {
		t.Fatalf("applied %d, cut at %d past replica 13", g.applied, g.log.TruncatedIndex())
	}
	c.Step("", wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(13)), To: new(uint64(11)), Term: new(g.term), Index: new(uint64(4))}})
	pass(t, c)
	if cut(2) != 4 {
		t.Fatalf("cut at %d, the slowest follower is at 4", g.log.TruncatedIndex())
	}
	c.Step("", wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(12)), To: new(uint64(11)), Term: new(g.term + 1), Index: new(uint64(6))}})
	if cut(3) != 4 {
		t.Fatalf("cut at %d by a leader that is none", g.log.TruncatedIndex())
	}
	pass(t, c)
	if cut(4) != 4 || g.leader {
		t.Fatalf("cut at %d by a follower", g.log.TruncatedIndex())
	}
}

// TestMembershipIsDurableBeforeItIsSent: a replica that learns that a member is
// no longer a voter removes that member for good, and the removed member may
// have more entries than the leader. After a power cut, the group must not need
// the removed member's vote again.
func TestMembershipIsDurableBeforeItIsSent(t *testing.T) {
	c, err := newCore(&recovery.Recovered{}, Options{RetainBytes: 1 << 30, Placement: placement{locate: nodeOf}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.finishCreate([]GroupConfig{{Shard: 1, Replica: 11, Voters: wire.ReplicaIDs([]uint64{11, 12})}}); err != nil {
		t.Fatal(err)
	}
	g := c.groups[1]
	for range 40 {
		if !g.leader {
			c.tickAll()
			pass(t, c)
		}
	}
	if err := c.ChangeMembers(1, sharding.Term(g.term), Change{AddLearners: wire.ReplicaIDs([]uint64{12})}); err != nil {
		t.Fatal(err)
	}
	durable, asked := g.written.Conf.Index, 0
	for i := range 40 {
		if err := c.Propose(1, sharding.Term(g.term), uint64(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
		unwritten := g.confUnwritten
		turn := c.beginTurn()
		for _, m := range turn.Early {
			if asked += len(m.Raft.GetEntries()); unwritten {
				t.Fatalf("%v leaves under a membership that is not in the log", m.Raft)
			}
		}
		out := append([]envelope(nil), turn.Early...)
		for p := c.records.nextTurn(); p != nil; p = c.records.nextTurn() {
			c.records.onAppended(wal.Position{Segment: 1})
		}
		if turn.MustSync {
			durable = g.written.Conf.Index
		}
		c.finishTurn()
		if st, err := c.Status(1); err != nil || len(st.Voters) == 1 && durable != g.conf.Index {
			t.Fatalf("told %v with a membership of index %d in the log, it is of %d: %v", st.Voters, durable, g.conf.Index, err)
		}
		for _, m := range append(out, turn.Late...) {
			if m.Raft.GetTo() == 12 {
				agree(c, m.Raft)
			}
		}
	}
	if st, err := c.Status(1); err != nil || len(st.Voters) != 1 || asked < 10 {
		t.Fatalf("the members are %v, %d entries left early: %v", st.Voters, asked, err)
	}
}
