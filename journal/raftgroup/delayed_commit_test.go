package raftgroup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// TestCommitIndexOfBusyGroupIsSentWithEntries: each entry costs one message to
// each follower and one response, instead of two messages and two responses.
// The last commit index is sent with the next tick.
func TestCommitIndexOfBusyGroupIsSentWithEntries(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.beat()
	propose := func(data string) {
		t.Helper()
		if err := n.driver.Core().Propose(1, n.sink.leader(1).Term, 1, []byte(data)); err != nil {
			t.Fatal(err)
		}
		d.settle()
		if !slices.Contains(n.machine.data(1), data) {
			t.Fatalf("%s is not committed", data)
		}
	}
	before := n.driver.core.stats.MessagesSent
	for i := range 20 {
		propose(fmt.Sprint(i))
	}
	if sent := n.driver.core.stats.MessagesSent - before; sent != 2*20 {
		t.Errorf("%d messages for 20 entries", sent)
	}
	if slices.Contains(d.nodes[1].machine.data(1), "19") || !slices.Contains(d.nodes[2].machine.data(1), "18") {
		t.Error("commits do not travel with the next entries")
	}
	d.beat()
	for _, f := range d.nodes[1:] {
		if !slices.Contains(f.machine.data(1), "19") {
			t.Error("the last commit did not come with the tick")
		}
	}
	if len(n.group(1).delayed.messages) > 0 {
		t.Error("messages are kept back without end")
	}
	d.doze(1)
}

// TestTickSendsCommitIndexToAllMembers: the delayed messages of all members leave
// with the next tick, in the steady state and without it.
func TestTickSendsCommitIndexToAllMembers(t *testing.T) {
	for _, steady := range []bool{false, true} {
		d := newDrill(t, 5, 1)
		d.until("a leader", 60, func() bool { return d.led(1) })
		n := d.lead(1, 0)
		d.beat()
		core, g := n.driver.Core(), n.group(1)
		for i := range 5 {
			if err := core.Propose(1, n.sink.leader(1).Term, 1, []byte(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			d.settle()
		}
		if !steady {
			g.node()
		}
		if g.steady.on != steady {
			t.Fatalf("the group is steady: %v, want %v", g.steady.on, steady)
		}
		core.tickAll()
		sent := map[uint64]uint64{}
		for _, m := range core.mail.waiting {
			if m.Raft.GetType() == pb.MsgApp {
				sent[m.Raft.GetTo()] = m.Raft.GetCommit()
			}
		}
		for i := range 4 {
			if commit := sent[uint64(d.replica(1, i+1))]; commit != g.hard.Commit {
				t.Errorf("steady %v: node %d was sent commit index %d, want %d", steady, i+1, commit, g.hard.Commit)
			}
		}
		if len(g.delayed.messages) > 0 {
			t.Errorf("steady %v: %d messages are still delayed", steady, len(g.delayed.messages))
		}
	}
}

// TestTickSendsNoCommitIndexBeforeEntries: entries that wait for the next turn of a
// steady group carry the commit index.
func TestTickSendsNoCommitIndexBeforeEntries(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.beat()
	core, g := n.driver.Core(), n.group(1)
	for i := range 3 {
		if err := core.Propose(1, n.sink.leader(1).Term, 1, []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	if err := core.Propose(1, n.sink.leader(1).Term, 1, []byte("next")); err != nil {
		t.Fatal(err)
	}
	if !g.steady.on || len(g.proposals) != 1 {
		t.Fatalf("steady %v with %d proposals", g.steady.on, len(g.proposals))
	}
	core.tickAll()
	for _, m := range core.mail.waiting {
		if m.Raft.GetType() == pb.MsgApp {
			t.Errorf("sent %v", m.Raft)
		}
	}
	d.settle()
	if !slices.Contains(n.machine.data(1), "next") {
		t.Error("the entry is not committed")
	}
	for _, f := range d.nodes[1:] {
		if !slices.Contains(f.machine.data(1), "2") {
			t.Error("the commit index did not come with the entry")
		}
	}
}

// TestCommitIndexOfMetadataShardIsNotDelayed: the commit index is sent at once,
// because all nodes act on the metadata and its changes usually come alone.
func TestCommitIndexOfMetadataShardIsNotDelayed(t *testing.T) {
	for _, tt := range []struct {
		shard   sharding.ShardID
		entries int
		busy    bool
	}{{sharding.MetaShard, 0, false}, {sharding.MetaShard, 1, false}, {sharding.MetaShard, 2, true}, {1, 0, false}, {1, 1, true}} {
		g := &group{shard: tt.shard, delayed: delayed{fresh: tt.entries}}
		if g.expectsEntries() != tt.busy {
			t.Errorf("shard %d is busy with %d entries in a tick: %v", tt.shard, tt.entries, g.expectsEntries())
		}
	}
}

// TestDelayedMessagesAreDroppedWithTheirTerm: a leader that lost its leadership sends
// nothing more in its old term.
func TestDelayedMessagesAreDroppedWithTheirTerm(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.beat()
	for i := range 5 {
		if err := n.driver.Core().Propose(1, n.sink.leader(1).Term, 1, []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	g := n.group(1)
	g.node() // ends the steady state, in which the commit index waits for the next entries
	if len(g.delayed.messages) != 2 {
		t.Fatalf("%d messages are kept back", len(g.delayed.messages))
	}
	n.driver.core.stepDown(g)
	d.settle()
	n.driver.core.tickAll()
	for _, m := range n.driver.core.mail.waiting {
		if m.Note == wire.NoteNone {
			t.Errorf("sent %v", m.Raft)
		}
	}
	d.until("a leader", 60, func() bool { return d.led(1) })
	d.write(1, "after", 0, 1, 2)
}

// TestCommitOfMembershipChangeIsNotDelayed: members of a busy group learn that a
// membership change is committed before its leader can fail. Otherwise they
// would use the previous membership, of which too few members may be left.
func TestCommitOfMembershipChangeIsNotDelayed(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	d.beat()
	core, term := n.driver.Core(), n.sink.leader(1).Term
	for i := range 5 {
		if err := core.Propose(1, term, 1, []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	if err := core.ChangeMembers(1, term, Change{Remove: []sharding.ReplicaID{d.replica(1, 2)}}); err != nil {
		t.Fatal(err)
	}
	d.settle()
	for _, m := range d.nodes[:2] {
		s, err := m.driver.Core().Status(1)
		if want := []sharding.ReplicaID{d.replica(1, 0), d.replica(1, 1)}; err != nil || !slices.Equal(s.Voters, want) {
			t.Errorf("node %d goes by the voters %v, want %v, %v", m.i, s.Voters, want, err)
		}
	}
}
