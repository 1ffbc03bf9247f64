package raftgroup

import (
	"errors"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// TestFailoverOfAllGroups: if the node that led all groups dies, each group has
// a new leader within 1.5 s, with the default tick of 100 ms.
func TestFailoverOfAllGroups(t *testing.T) {
	shards := 256
	if testing.Short() {
		shards = 64
	}
	for _, nodes := range []int{3, 5} {
		d := newDrill(t, nodes, shards)
		d.until("leaders", 60, func() bool { return d.led(shards) })
		for s := 1; s <= shards; s++ {
			d.lead(s, 0)
		}
		d.nodes[0].up = false
		beats := d.until("leaders without node 0", 15, func() bool { return d.led(shards) })
		share := make([]int, nodes)
		campaigns := uint64(0)
		for s := 1; s <= shards; s++ {
			share[d.leader(s).i]++
			d.write(s, "after", 1, nodes-1)
		}
		for _, n := range d.nodes[1:] {
			campaigns += n.driver.core.stats.Campaigns
		}
		t.Logf("%d nodes: %d beats after the death, %d campaigns, leaders by node %v", nodes, beats, campaigns, share)
		for i, n := range share[1:] {
			if n < shards/nodes/2 {
				t.Errorf("node %d leads only %d of %d groups: %v", i+1, n, shards, share)
			}
		}
		if campaigns > uint64(shards*5/4) {
			t.Errorf("%d campaigns for %d groups", campaigns, shards)
		}
	}
}

// TestCampaignsAreBounded: leaderless groups do not all campaign at once.
func TestCampaignsAreBounded(t *testing.T) {
	const shards = 60
	d := newDrill(t, 3, shards)
	d.until("leaders", 60, func() bool { return d.led(shards) })
	for s := 1; s <= shards; s++ {
		d.lead(s, 0)
	}
	for _, n := range d.nodes[1:] {
		n.driver.core.opts.MaxCampaigns = 3
	}
	d.nodes[0].up = false
	d.until("silence", 10, func() bool { return d.nodes[1].driver.core.elections.Len() > 0 })
	for range 5 {
		before := d.nodes[1].driver.core.stats.Campaigns
		d.beat()
		if n := d.nodes[1].driver.core.stats.Campaigns - before; n > 3 {
			t.Fatalf("%d campaigns in one beat", n)
		}
	}
	d.until("leaders", 60, func() bool { return d.led(shards) })
}

// TestLeaderWithoutQuorumStepsDown: the leader steps down as soon as its peers
// are suspected, and its waiting requests fail.
func TestLeaderWithoutQuorumStepsDown(t *testing.T) {
	d := newDrill(t, 3, 4)
	d.until("leaders", 60, func() bool { return d.led(4) })
	old := d.lead(1, 0)
	if !old.sink.quorum(1) {
		t.Error("a leader in a whole cluster is told of no quorum")
	}
	for _, i := range []int{1, 2} {
		d.cut[[2]int{0, i}], d.cut[[2]int{i, 0}] = true, true
	}
	if err := old.driver.Core().ReadIndex(1, 9); err != nil {
		t.Fatal(err)
	}
	beats := d.until("another leader", 15, func() bool { return d.leader(1) != old && d.leader(1) != nil })
	if l := old.sink.leader(1); l.Self || l.Leader != 0 {
		t.Errorf("after %d beats the old leader says %+v", beats, l)
	}
	if old.sink.quorum(1) || !d.nodes[1].sink.quorum(1) {
		t.Error("the minority hears a quorum, or the majority none")
	}
	if r, ok := old.sink.read(9); !ok || !errors.Is(r.Err, ErrNotLeader) {
		t.Errorf("the read was answered %v: %+v", ok, r)
	}
	clear(d.cut)
	d.until("the old leader follows", 15, func() bool { return old.sink.leader(1).Leader != 0 && old.sink.quorum(1) })
	d.write(1, "healed", 0, 1, 2)
}

// TestSuspectedFollowerDoesNotAffectLeader: the leader still has a quorum.
func TestSuspectedFollowerDoesNotAffectLeader(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	d.lead(1, 1)
	term := d.nodes[1].sink.leader(1).Term
	d.nodes[2].up = false
	for range 40 {
		d.beat()
	}
	if l := d.nodes[1].sink.leader(1); !l.Self || l.Term != term || !d.nodes[1].sink.quorum(1) {
		t.Errorf("the leader of term %d is now %+v", term, l)
	}
	d.write(1, "two", 0, 1)
	d.nodes[2].up = true
	d.until("catching up", 30, func() bool { return slices.Contains(d.nodes[2].machine.data(1), "two") })
}

// TestNodesNeverHeardFromBecomeSuspected: a node from which nothing has ever
// arrived becomes suspected after the timeout. A group of one replica always
// has its quorum.
func TestNodesNeverHeardFromBecomeSuspected(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.nodes[0].create(GroupConfig{Shard: 2, Replica: 20, Voters: wire.ReplicaIDs([]uint64{20})})
	d.nodes[1].up, d.nodes[2].up = false, false
	d.settle()
	if !d.nodes[0].sink.quorum(1) || !d.nodes[0].sink.quorum(2) {
		t.Error("no quorum right after the start")
	}
	d.until("silence", 8, func() bool { return !d.nodes[0].sink.quorum(1) })
	if d.beats < 7 {
		t.Errorf("silent after %d beats", d.beats)
	}
	d.nodes[1].up = true
	d.until("a quorum of two", 2, func() bool { return d.nodes[0].sink.quorum(1) })
	d.until("a leader", 15, func() bool { return d.led(1) })
	if !d.nodes[0].sink.quorum(2) {
		t.Error("the group of one lost its quorum")
	}
}

// TestJointMembershipNeedsBothQuorums: a joint membership has a quorum only if
// both halves have a quorum.
func TestJointMembershipNeedsBothQuorums(t *testing.T) {
	tests := []struct {
		voters, outgoing []uint64
		silent           string
		want             bool
	}{
		{[]uint64{10, 11, 12}, nil, "n1", true},
		{[]uint64{10, 11, 12}, nil, "n1 n2", false},
		{[]uint64{10, 11, 12}, []uint64{10}, "n1 n2", false},
		{[]uint64{10}, []uint64{10, 11, 12}, "n1 n2", false},
		{[]uint64{10, 11, 12}, []uint64{10, 13, 14}, "n1 n3", true},
		{[]uint64{11, 12, 13}, nil, "n1", true}, // this replica is a learner
		{[]uint64{11, 12, 13}, nil, "n1 n2", false},
		{[]uint64{10, 11, 12, 13}, nil, "n1 n2", false},
		{[]uint64{10, 99}, nil, "", false}, // the node of 99 is unknown
	}
	for _, tt := range tests {
		c, err := newCore(&recovery.Recovered{}, Options{Placement: placement{locate: func(s sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
			node, _ := nodeOf(s, r)
			return node, r != 99
		}}})
		if err != nil {
			t.Fatal(err)
		}
		g := newGroup(1, 10)
		g.conf = GroupConfig{Voters: wire.ReplicaIDs(tt.voters)}.membership()
		g.conf.State.VotersOutgoing = tt.outgoing
		if err := g.newNode(&c.opts, 0, nil); err != nil {
			t.Fatal(err)
		}
		c.add(g)
		for _, node := range []sharding.NodeID{"n1", "n2", "n3", "n4"} {
			if slices.Contains([]string{tt.silent[:min(2, len(tt.silent))], tt.silent[max(0, len(tt.silent)-2):]}, string(node)) {
				c.PeerSuspected(node)
			} else {
				c.PeerAlive(node)
			}
		}
		if g.quorum != tt.want {
			t.Errorf("voters %v outgoing %v without %q: quorum %v", tt.voters, tt.outgoing, tt.silent, g.quorum)
		}
	}
}

// TestReplicaNodesAreLearnedFromMessages: a replica's node is learned from the
// origin of the replica's messages.
func TestReplicaNodesAreLearnedFromMessages(t *testing.T) {
	d := newEmptyDrill(t, 3)
	d.nodes[2].blind = true
	d.fill(1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	d.lead(1, 0)
	d.write(1, "x", 0, 1, 2)
	if d.nodes[2].driver.core.groups[1].routes.Locate(10) == nil {
		t.Fatal("the leader's node was not learned")
	}
	// Messages to the other follower are dropped until that follower sends a
	// message.
	d.nodes[0].up = false
	d.until("a leader", 30, func() bool { return d.led(1) })
	d.write(1, "y", 1, 2)
}

// TestUnlocatedMessagesAreDropped also checks that the quorum excludes a voter
// whose node is unknown.
func TestUnlocatedMessagesAreDropped(t *testing.T) {
	d := newEmptyDrill(t, 3)
	for _, n := range d.nodes {
		n.blind = true
	}
	d.fill(1)
	for range 40 {
		d.beat()
	}
	core := d.nodes[0].driver.core
	if core.stats.MessagesUnlocated == 0 || core.stats.FramesSent > 0 || d.nodes[0].sink.quorum(1) {
		t.Errorf("%+v, quorum %v", core.stats, d.nodes[0].sink.quorum(1))
	}
	for _, n := range d.nodes {
		n.blind = false
	}
	d.until("a leader", 40, func() bool { return d.led(1) && d.nodes[0].sink.quorum(1) })
	d.write(1, "found", 0, 1, 2)
}

func TestPeerEventsAreBounded(t *testing.T) {
	var w inboxWork
	for i := range 100 {
		w.AddPeer(peerEvent{Node: "a", Alive: i%2 == 0})
		w.AddPeer(peerEvent{Node: "b"})
	}
	want := []peerEvent{{Node: "b"}, {Node: "a", Alive: true}, {Node: "a"}}
	if !slices.Equal(w.Peers, want) {
		t.Errorf("kept %v", w.Peers)
	}
}

// TestSuspectedNodesWithoutReplicasAreForgotten: nodes are forgotten once they are suspected
// and no replica lives on them.
func TestSuspectedNodesWithoutReplicasAreForgotten(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("a leader", 60, func() bool { return d.led(1) })
	n := d.lead(1, 0)
	core := n.driver.Core()
	core.PeerAlive("guest")
	core.PeerSuspected("guest")
	d.nodes[2].up = false
	d.until("silence", 10, func() bool { return core.Stats().Suspected == 1 })
	if s := core.Stats(); s.Peers != 2 {
		t.Errorf("%+v", s)
	}
	if err := core.ChangeMembers(1, n.sink.leader(1).Term, Change{Remove: wire.ReplicaIDs([]uint64{12})}); err != nil {
		t.Fatal(err)
	}
	d.until("one peer", 6, func() bool { s := core.Stats(); return s.Peers == 1 && s.Suspected == 0 })
	d.write(1, "x", 0, 1)
}
