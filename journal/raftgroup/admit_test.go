package raftgroup

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// changes encodes a membership change entry.
func changes(t testing.TB, kind pb.ConfChangeType, ids ...uint64) []byte {
	t.Helper()
	c := &pb.ConfChangeV2{}
	for _, id := range ids {
		c.Changes = append(c.Changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)})
	}
	data, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestForgedMessagesAreRejected steps each message at the leader or a follower
// of a working group. All messages are rejected, the term does not rise,
// nothing panics, and the group continues.
func TestForgedMessagesAreRejected(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("leader", 60, func() bool { return d.led(1) })
	d.lead(1, 0)
	d.lead(1, 1) // now in a later term than the first
	d.write(1, "before", 0, 1, 2)
	for _, n := range d.nodes {
		locate := n.driver.core.opts.Placement.Locate
		n.driver.core.opts.Placement = placement{
			locate: func(s sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
				if r > 99 {
					return "", false
				}
				return locate(s, r)
			},
			isUnknown: func(_ sharding.ShardID, r sharding.ReplicaID) bool { return r > 100 },
		}
	}
	g := d.nodes[0].driver.core.groups[1]
	term, last := g.hard.Term, g.log.Last()
	prev, err := g.log.Term(last)
	if err != nil {
		t.Fatal(err)
	}
	const far = uint64(1) << 50
	message := func(kind pb.MessageType, from uint64, change func(*pb.Message)) *pb.Message {
		m := &pb.Message{Type: kind.Enum(), From: new(from), Term: new(term), Index: new(last), LogTerm: new(prev), Commit: new(last)}
		if change != nil {
			change(m)
		}
		return m
	}
	entry := func(index, term uint64) *pb.Entry {
		return &pb.Entry{Index: new(index), Term: new(term), Type: pb.EntryNormal.Enum(), Data: []byte("forged")}
	}
	tests := map[string]struct {
		at   int
		node sharding.NodeID
		m    *pb.Message
	}{
		"a commit that this log never had": {0, "n1", message(pb.MsgHeartbeat, 11, func(m *pb.Message) { m.Commit = new(far) })},
		"a commit one beyond the log":      {0, "n1", message(pb.MsgHeartbeat, 11, func(m *pb.Message) { m.Commit = new(last + 1) })},
		"a made-up replica":                {0, "n1", message(pb.MsgHeartbeat, 4711, func(m *pb.Message) { m.Term = new(term + 1) })},
		"an unknown leader":                {0, "n9", message(pb.MsgHeartbeat, 100, func(m *pb.Message) { m.Term = new(term + 1) })},
		"an unknown leader, at the leader": {1, "n9", message(pb.MsgApp, 100, func(m *pb.Message) { m.Term, m.Entries = new(term+1), []*pb.Entry{entry(last+1, term+1)} })},
		"an unknown candidate":             {1, "n9", message(pb.MsgVote, 100, func(m *pb.Message) { m.Term = new(term + 1) })},
		"another node's replica":           {0, "n2", message(pb.MsgHeartbeat, 11, nil)},
		"a vote for another node's":        {0, "n1", message(pb.MsgVote, 12, func(m *pb.Message) { m.Term = new(term + 1) })},
		"a term of no election":            {0, "n1", message(pb.MsgHeartbeat, 11, func(m *pb.Message) { m.Term = new(uint64(1) << 40) })},
		"the last of all terms":            {1, "n2", message(pb.MsgVote, 12, func(m *pb.Message) { m.Term = new(uint64(math.MaxUint64)) })},
		"an index of no log":               {0, "n1", message(pb.MsgApp, 11, func(m *pb.Message) { m.Index = new(uint64(math.MaxUint64 - 1)) })},
		"another history":                  {0, "n1", message(pb.MsgApp, 11, func(m *pb.Message) { m.LogTerm = new(prev + 7) })},
		"another committed entry": {0, "n1", message(pb.MsgApp, 11, func(m *pb.Message) {
			before, _ := g.log.Term(last - 1)
			m.Index, m.LogTerm, m.Entries, m.Term = new(last-1), new(before), []*pb.Entry{entry(last, term+1)}, new(term+1)
		})},
		"more than was ever sent":       {1, "n2", message(pb.MsgAppResp, 12, func(m *pb.Message) { m.Index = new(far) })},
		"an acknowledgement of no term": {1, "n2", message(pb.MsgAppResp, 12, func(m *pb.Message) { m.Term, m.Index = new(uint64(0)), new(last+1) })},
		"one more than was ever sent":   {1, "n2", message(pb.MsgAppResp, 12, func(m *pb.Message) { m.Index = new(last + 1) })},
	}
	for name, tt := range tests {
		core := d.nodes[tt.at].driver.Core()
		rejected := func() uint64 { return core.Stats().MessagesForged + core.Stats().MessagesRefused }
		before := rejected()
		tt.m.To = new(uint64(d.replica(1, tt.at)))
		core.Step(tt.node, wire.Message{Shard: 1, Raft: tt.m})
		if n := rejected() - before; n != 1 {
			t.Errorf("%s: %d messages refused", name, n)
		}
		d.settle()
	}
	core := d.nodes[1].driver.Core()
	before := core.Stats().MessagesForged
	core.Step("n2", wire.Message{Shard: 1, Raft: message(pb.MsgAppResp, 12, func(m *pb.Message) {
		m.To, m.Term, m.Index = new(uint64(d.replica(1, 1))), new(term-1), new(last+1)
	})})
	if n := core.Stats().MessagesForged - before; n != 0 {
		t.Error("what was acknowledged to an earlier leadership, and lost in a crash, counts as forged")
	}
	if d.leader(1) != d.nodes[1] || d.nodes[1].sink.leader(1).Term != sharding.Term(term) {
		t.Errorf("the leader is %+v now", d.nodes[1].sink.leader(1))
	}
	d.write(1, "after", 0, 1, 2)
	for _, n := range d.nodes {
		if slices.Contains(n.machine.data(1), "forged") {
			t.Error("a forged entry was applied")
		}
	}
}

// TestLaggingReplicaFollowsUnknownLeader: neither the replica's members nor
// its metadata include the leader. It still catches up, but only once it has no
// other leader. Until then, the unknown leader's messages wake it, so that it
// notices when the leader that it knows is gone.
func TestLaggingReplicaFollowsUnknownLeader(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.doze(1)
	d.lead(1, 1)
	d.doze(1)
	d.nodes[0].driver.core.opts.Placement = placement{isUnknown: func(_ sharding.ShardID, r sharding.ReplicaID) bool { return r != 4711 }}
	core, g := d.nodes[0].driver.Core(), d.nodes[0].driver.core.groups[1]
	before := core.Stats().MessagesRefused
	heartbeat := wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(4711)), To: new(g.replica),
		Term: new(g.hard.Term + 3), Commit: new(g.hard.Commit)}}
	core.Step("n2", heartbeat)
	if refused := core.Stats().MessagesRefused - before; refused != 1 || g.asleep {
		t.Fatalf("%d messages refused, asleep %v", refused, g.asleep)
	}
	for _, i := range []int{1, 2} {
		d.cut[[2]int{0, i}], d.cut[[2]int{i, 0}] = true, true
	}
	d.until("no leader", 60, func() bool { return !g.HasLeader() })
	before++
	core.Step("n2", heartbeat)
	for core.HasWork() {
		if err := d.nodes[0].driver.Turn(); err != nil {
			t.Fatal(err)
		}
	}
	if core.Stats().MessagesRefused != before || core.Stats().MessagesForged > 0 || d.nodes[0].sink.leader(1).Leader != 4711 {
		t.Errorf("the leader is %+v", d.nodes[0].sink.leader(1))
	}
}

// TestLearnerFollowsUnknownLeader: a learner, which never campaigns, follows an
// unknown leader once the leader that it knows has been silent for an election
// timeout.
func TestLearnerFollowsUnknownLeader(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("leader", 60, func() bool { return d.led(1) })
	leader := d.lead(1, 1)
	err := leader.driver.Core().ChangeMembers(1, leader.sink.leader(1).Term, Change{AddLearners: []sharding.ReplicaID{d.replica(1, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	core, g := d.nodes[0].driver.Core(), d.nodes[0].driver.core.groups[1]
	d.until("learner", 60, func() bool { return slices.Contains(g.conf.State.GetLearners(), g.replica) && g.HasLeader() })
	core.opts.Placement = placement{isUnknown: func(_ sharding.ShardID, r sharding.ReplicaID) bool { return r != 4711 }}
	for _, i := range []int{1, 2} {
		d.nodes[i].up = false
	}
	heartbeat := wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(4711)), To: new(g.replica),
		Term: new(g.hard.Term + 3), Commit: new(g.hard.Commit)}}
	for range 4 * core.opts.ElectionTicks {
		if err := d.nodes[0].driver.Tick(); err != nil { // without a report that the leader's node is silent
			t.Fatal(err)
		}
		core.Step("n2", heartbeat)
		d.settle()
	}
	if d.nodes[0].sink.leader(1).Leader != 4711 {
		t.Errorf("the leader is %+v", d.nodes[0].sink.leader(1))
	}
}

// TestRaftPanicFailsOnlyItsGroup commits a change that removes all members, at
// which raft panics on every replica. The group fails with an error that names
// it, and fails again after a restart. The other group of the nodes continues.
func TestRaftPanicFailsOnlyItsGroup(t *testing.T) {
	d := newEmptyDrill(t, 3)
	d.contain = true
	for _, n := range d.nodes {
		n.restart()
	}
	d.fill(2)
	d.until("leaders", 60, func() bool { return d.led(2) })
	for round := range 2 {
		if round == 0 {
			d.write(1, "before", 0, 1, 2)
			n := d.leader(1)
			if err := n.driver.Core().ChangeMembers(1, n.sink.leader(1).Term, Change{Remove: d.replicas(1)}); err != nil {
				t.Fatal(err)
			}
			d.settle()
		}
		d.until("failures", 60, func() bool {
			return !slices.ContainsFunc(d.nodes, func(n *drilled) bool { return len(n.failed) == 0 })
		})
		for _, n := range d.nodes {
			if f := n.failed; len(f) != 1 || f[0].Shard != 1 || !strings.Contains(f[0].Err.Error(), "removed all voters") {
				t.Fatalf("round %d: node %d: %v", round, n.i, f)
			}
			st, err := n.driver.Core().Status(1)
			if err != nil || st.Stopped != sharding.StopDamaged || st.Self || n.sink.leader(1).Self {
				t.Errorf("round %d: node %d: %+v, %v", round, n.i, st, err)
			}
		}
		d.until("leader", 60, func() bool { return d.leader(2) != nil })
		d.write(2, "goes on", 0, 1, 2)
		for range 30 {
			d.beat()
		}
		if round == 0 {
			for _, n := range d.nodes {
				n.machine.flush()
			}
			d.beat()
			for _, n := range d.nodes {
				n.restart()
			}
		}
	}
}
