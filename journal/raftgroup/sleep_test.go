package raftgroup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func (n *drilled) group(shard int) *group { return n.driver.core.groups[sharding.ShardID(shard)] }

// asleep reports whether the group sleeps on all running nodes.
func (d *drill) asleep(shards int) bool {
	for _, n := range d.nodes {
		for s := 1; n.up && s <= shards; s++ {
			if g := n.group(s); g != nil && !g.asleep {
				return false
			}
		}
	}
	return true
}

// doze waits until all groups sleep.
func (d *drill) doze(shards int) {
	d.t.Helper()
	d.until("asleep", 60, func() bool { return d.led(shards) && d.asleep(shards) })
}

// TestIdleGroupsSleep: once all groups sleep, a tick does no work and sends no
// message.
func TestIdleGroupsSleep(t *testing.T) {
	const shards = 20
	d := newDrill(t, 3, shards)
	d.doze(shards)
	sent := 0
	for _, n := range d.nodes {
		sent += n.sent
	}
	for range 200 {
		for _, n := range d.nodes {
			n.hear()
			n.driver.core.tickAll()
			if n.driver.core.HasWork() {
				t.Fatal("a tick of sleeping groups gives work to do")
			}
		}
	}
	for _, n := range d.nodes {
		sent -= n.sent
		if s := n.driver.core.Stats(); s.Awake != 0 || s.Groups != shards || s.Sleeps < shards {
			t.Errorf("%+v", s)
		}
	}
	if sent != 0 {
		t.Errorf("%d frames sent while all slept", -sent)
	}
	if s, err := d.nodes[0].driver.Core().Status(1); err != nil || !s.Quiescent || !s.Quorum {
		t.Errorf("%+v %v", s, err)
	}
}

// TestWorkWakesSleepingGroups: a sleeping group does any new work at once, on
// all replicas.
func TestWorkWakesSleepingGroups(t *testing.T) {
	d := newDrill(t, 3, 1)
	tests := map[string]struct {
		input func(n *drilled) error
		done  func() bool
	}{
		"proposal": {
			func(n *drilled) error {
				return n.driver.Core().Propose(1, n.sink.leader(1).Term, 1, []byte("x"))
			},
			func() bool { return slices.Contains(d.nodes[2].machine.data(1), "x") },
		},
		"read": {
			func(n *drilled) error { return n.driver.Core().ReadIndex(1, 77) },
			func() bool {
				for _, n := range d.nodes {
					if r, ok := n.sink.read(77); ok && r.Err == nil {
						return true
					}
				}
				return false
			},
		},
		"transfer": {
			func(n *drilled) error {
				return n.driver.Core().TransferLeader(1, d.replica(1, (n.i+1)%3))
			},
			func() bool { n := d.leader(1); return n.sink.leader(1).Term > 1 },
		},
		"change of members": {
			func(n *drilled) error {
				return n.driver.Core().ChangeMembers(1, n.sink.leader(1).Term, Change{AddVoters: wire.ReplicaIDs([]uint64{10})})
			},
			func() bool { return d.nodes[0].group(1).conf.Index > 0 },
		},
	}
	d.doze(1)
	d.lead(1, 0)
	for _, name := range []string{"proposal", "read", "transfer", "change of members"} {
		d.doze(1)
		n := d.leader(1)
		if err := tests[name].input(n); err != nil {
			t.Fatal(name, err)
		}
		if n.group(1).asleep {
			t.Errorf("%s: the leader sleeps on", name)
		}
		d.until(name, 4, tests[name].done)
	}
	d.doze(1)
}

// TestReadOnSleepingLeaderNeedsAQuorum: a leader that wakes without a quorum
// never confirms a read.
func TestReadOnSleepingLeaderNeedsAQuorum(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.doze(1)
	n := d.lead(1, 0)
	d.doze(1)
	for _, i := range []int{1, 2} {
		d.cut[[2]int{0, i}], d.cut[[2]int{i, 0}] = true, true
	}
	if err := n.driver.Core().ReadIndex(1, 5); err != nil {
		t.Fatal(err)
	}
	for range 15 {
		d.beat()
		if r, ok := n.sink.read(5); ok && r.Err == nil {
			t.Fatalf("answered %+v without a quorum", r)
		}
	}
	if r, ok := n.sink.read(5); !ok || r.Err == nil {
		t.Errorf("after it stepped aside: %v %+v", ok, r)
	}
}

// TestNodeFailureWakesItsSleepingGroups: groups that the failed node led get leaders as
// fast as groups that are awake.
func TestNodeFailureWakesItsSleepingGroups(t *testing.T) {
	const shards = 30
	d := newDrill(t, 3, shards)
	d.until("leaders", 60, func() bool { return d.led(shards) })
	for s := 1; s <= shards; s++ {
		d.lead(s, s%3)
	}
	d.doze(shards)
	wakes := d.nodes[1].driver.core.Stats().Wakes
	d.nodes[0].up = false
	beats := d.until("leaders without node 0", 15, func() bool { return d.led(shards) })
	t.Logf("%d beats after the death", beats)
	if s := d.nodes[1].driver.core.Stats(); s.Wakes-wakes > 2*shards || s.Suspected != 1 {
		t.Errorf("%+v", s)
	}
	for s := 1; s <= shards; s++ {
		d.write(s, "x", 1, 2)
	}
	d.doze(shards) // the dead node's replicas keep no group awake
}

// TestGroupsSleepWithoutSuspectedMembers: a voter and a learner on suspected nodes do not
// delay sleep, and catch up once they are alive again.
func TestGroupsSleepWithoutSuspectedMembers(t *testing.T) {
	d := newDrill(t, 5, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	change := Change{AddLearners: wire.ReplicaIDs([]uint64{14})}
	if err := n.driver.Core().ChangeMembers(1, n.sink.leader(1).Term, change); err != nil {
		t.Fatal(err)
	}
	d.doze(1)
	if s, _ := n.driver.Core().Status(1); len(s.Learners) != 1 {
		t.Fatalf("%+v", s)
	}
	d.nodes[3].up, d.nodes[4].up = false, false
	d.write(1, "missed", 0, 1, 2)
	d.doze(1)
	d.nodes[3].up, d.nodes[4].up = true, true
	d.until("catching up", 6, func() bool {
		return slices.Contains(d.nodes[3].machine.data(1), "missed") && slices.Contains(d.nodes[4].machine.data(1), "missed")
	})
	d.doze(1)
}

// TestLeaderStaysAwakeWhileAMemberLags: a leader does not sleep while a member
// on an alive node does not receive its entries.
func TestLeaderStaysAwakeWhileAMemberLags(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.nodes[2].up = false // down for less than the suspicion timeout
	d.write(1, "x", 0, 1)
	d.nodes[2].up = true
	d.cut[[2]int{2, 0}] = true // its responses get lost, but its pings use a different link
	n.last[2] = d.beats
	for range 30 {
		n.driver.Core().PeerAlive("n2")
		n.last[2] = d.beats
		d.beat()
		if n.group(1).asleep {
			t.Fatal("the leader sleeps without an answer of a member that is heard")
		}
	}
}

func TestFollowerSleepsOnlyInAgreement(t *testing.T) {
	message := func(g *group) wire.Message {
		return wire.Message{Shard: 1, Note: wire.NoteSleep, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(),
			From: new(g.lead), To: new(g.replica), Term: new(g.term), Commit: new(g.hard.Commit)}}
	}
	tests := map[string]struct {
		change func(n *drilled, m *wire.Message)
		sleeps bool
	}{
		"agreement":          {func(*drilled, *wire.Message) {}, true},
		"lower commit":       {func(_ *drilled, m *wire.Message) { *m.Raft.Commit-- }, false},
		"higher term":        {func(_ *drilled, m *wire.Message) { *m.Raft.Term++ }, false},
		"lower term":         {func(_ *drilled, m *wire.Message) { *m.Raft.Term-- }, false},
		"not the leader":     {func(n *drilled, m *wire.Message) { m.Raft.From = new(uint64(12)) }, false},
		"leader's node mute": {func(n *drilled, m *wire.Message) { n.driver.core.nodes.MarkSuspected("n0") }, false},
		"entries behind it": {func(n *drilled, m *wire.Message) {
			log := n.group(1).log
			log.Append([]*pb.Entry{{Term: m.Raft.Term, Index: new(log.Last() + 1)}})
		}, false},
		"membership to write": {func(n *drilled, m *wire.Message) { n.group(1).confUnwritten = true }, false},
		"joint membership":    {func(n *drilled, m *wire.Message) { n.group(1).conf.State.VotersOutgoing = []uint64{10} }, false},
	}
	for name, tt := range tests {
		d := newDrill(t, 3, 1)
		for _, n := range d.nodes {
			n.driver.core.opts.QuiesceTicks = 1 << 30
		}
		d.until("a leader", 60, func() bool { return d.led(1) })
		d.lead(1, 0)
		d.beat()
		n := d.nodes[1]
		m := message(n.group(1))
		tt.change(n, &m)
		core := n.driver.core
		g := n.group(1)
		if slept := g.canFollowToSleep(m.Raft); slept != tt.sleeps {
			t.Errorf("%s: agrees %v", name, slept)
			continue
		}
		if tt.sleeps {
			core.Step("n0", m)
			if !g.asleep || core.HasWork() {
				t.Errorf("%s: awake or busy", name)
			}
		}
	}
}

// TestDisagreementKeepsTheLeaderAwake: a follower that does not know the commit
// index objects to the sleep note, and the leader stays awake.
func TestDisagreementKeepsTheLeaderAwake(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.doze(1)
	g := d.nodes[1].group(1)
	d.nodes[1].driver.core.clocks.wake(g)
	g.hard.Commit--
	wakes := n.driver.core.stats.Wakes
	d.nodes[1].driver.core.Step("n0", wire.Message{Shard: 1, Note: wire.NoteSleep, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(),
		From: new(uint64(10)), To: new(uint64(11)), Term: new(g.term), Commit: new(g.hard.Commit + 1)}})
	g.hard.Commit++
	d.settle()
	if n.group(1).asleep || n.driver.core.stats.Wakes != wakes+1 {
		t.Error("the leader sleeps on")
	}
	d.doze(1)
}

func TestIllegalSleepPanics(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	core := d.nodes[0].driver.core
	for name, change := range map[string]func(g *group){
		"without a leader": func(g *group) { g.lead = 0 },
		"twice":            func(g *group) { g.asleep = true },
		"held":             func(g *group) { g.readyWaits = true },
		"without a clock":  func(g *group) { g.place = 0 },
		"joint":            func(g *group) { g.conf.State.VotersOutgoing = []uint64{10} },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			g := *d.nodes[0].group(1)
			g.conf.State = proto.Clone(g.conf.State).(*pb.ConfState)
			change(&g)
			core.clocks.sleep(&g)
		}()
	}
}

// TestRestartedReplicaWakesTheOthers: the replica forgot the leader, and no
// node noticed its absence. If the restarted replica was the leader, the others
// elect a new leader at once.
func TestRestartedReplicaWakesTheOthers(t *testing.T) {
	for _, at := range []int{0, 1} {
		d := newDrill(t, 3, 1)
		d.until("a leader", 60, func() bool { return d.led(1) })
		d.lead(1, 0)
		d.doze(1)
		old := d.nodes[at]
		old.restart()
		if g := old.group(1); g.lead != 0 || g.asleep {
			t.Fatal("restarted with a leader, or asleep")
		}
		beats := d.until("a leader again", 12, func() bool { return old.group(1).lead != 0 && d.led(1) })
		t.Logf("node %d restarted: %d beats", at, beats)
		if term := old.sink.leader(1).Term; at == 1 && term != d.nodes[0].sink.leader(1).Term {
			t.Errorf("the leader of another term %d", term)
		}
		d.write(1, "x", 0, 1, 2)
		d.doze(1)
	}
}

// TestLostSleepNotesAreRepaired: if a follower did not get the note of its
// sleeping leader, it wakes the leader, and all of them fall asleep later.
func TestLostSleepNotesAreRepaired(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.doze(1)
	term := n.sink.leader(1).Term
	d.nodes[2].driver.core.clocks.wake(d.nodes[2].group(1)) // as if the node had not received the note
	d.until("the leader awake", 5, func() bool { return !n.group(1).asleep })
	d.doze(1)
	if n.sink.leader(1).Term != term || !n.sink.leader(1).Self {
		t.Error("it came to an election")
	}
}

// TestMessagesFromNonMembersDoNotWake: a message from a replica that was
// removed or is not a member yet wakes no group.
func TestMessagesFromNonMembersDoNotWake(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.doze(1)
	for _, m := range []wire.Message{
		{Shard: 1, Note: wire.NoteWake, Raft: &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(19)), To: new(uint64(10)), Term: new(n.group(1).term)}},
		{Shard: 1, Raft: &pb.Message{Type: pb.MsgPreVote.Enum(), From: new(uint64(19)), To: new(uint64(10)), Term: new(n.group(1).term + 1), Index: new(uint64(99)), LogTerm: new(n.group(1).term)}},
	} {
		n.driver.core.Step("n9", m)
		d.settle()
		if !n.group(1).asleep {
			t.Errorf("%v woke the group", m.Raft)
		}
	}
}

// TestHeartbeatsOfAllGroupsShareOneFrame: each node gets one frame with a few
// bytes per group.
func TestHeartbeatsOfAllGroupsShareOneFrame(t *testing.T) {
	const shards = 100
	d := newDrill(t, 3, shards)
	for _, n := range d.nodes {
		n.driver.core.opts.QuiesceTicks = 1 << 30
	}
	d.until("leaders", 60, func() bool { return d.led(shards) })
	for s := 1; s <= shards; s++ {
		d.lead(s, 0)
	}
	d.beat()
	before := make([]int, 3)
	for i, n := range d.nodes {
		before[i], n.bytes = n.sent, 0
	}
	d.beat()
	for i, want := range []int{2, 1, 1} { // the leader's heartbeats to both, and a response from each
		if got := d.nodes[i].sent - before[i]; got != want {
			t.Errorf("node %d sent %d frames, want %d", i, got, want)
		}
	}
	if per := float64(d.nodes[0].bytes) / (2 * shards); per > 12 {
		t.Errorf("%.1f bytes a heartbeat", per)
	}
}

// BenchmarkIdleTick measures one tick of one node's clock with idle groups of
// three replicas, including the turns and frames that follow on all nodes. Each
// node leads a third of the groups.
func BenchmarkIdleTick(b *testing.B) {
	for _, shards := range []int{256, 1024} {
		for _, sleep := range []bool{false, true} {
			b.Run(fmt.Sprintf("groups=%d/asleep=%v", shards, sleep), func(b *testing.B) {
				d := newDrill(b, 3, shards)
				d.until("leaders", 100, func() bool { return d.led(shards) })
				if sleep {
					d.until("asleep", 100, func() bool { return d.asleep(shards) })
				} else {
					for _, n := range d.nodes {
						n.driver.core.opts.QuiesceTicks = 1 << 30
					}
				}
				for _, n := range d.nodes {
					n.machine.flush() // nothing is left to truncate
				}
				for range 20 {
					d.beat()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					d.beat()
				}
				b.StopTimer()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3, "ns/tick/node")
			})
		}
	}
}
