package entity

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// TestHasLeadersOnlyWhenServing checks that a shard that this node leads
// counts as having a leader only after the node has applied the first entry
// of its own term. The node may learn of its election or of that entry first.
// A leader on another node counts at once.
func TestHasLeadersOnlyWhenServing(t *testing.T) {
	var r ShardRouter
	r.leads.init(2)
	check := func(want bool, when string) {
		t.Helper()
		if r.HasLeaders([]sharding.ShardID{0, 1, 2}) != want {
			t.Fatalf("%s: led is %v", when, !want)
		}
	}
	check(false, "nothing heard")
	r.leads.setLeader(0, 2, 7, true)
	r.leads.noteTermStart(0, 2)
	r.leads.noteTermStart(1, 3) // before the election is reported to r
	r.leads.setLeader(1, 3, 8, true)
	check(false, "shard 2 has no leader")
	r.leads.setLeader(2, 4, 9, false)
	check(true, "shard 2 is led by another node")
	r.leads.setLeader(2, 5, 10, true)
	check(false, "shard 2 is led here, and its term has not begun")
	r.leads.noteTermStart(2, 4)
	check(false, "an older term's entry")
	r.leads.noteTermStart(2, 5)
	check(true, "all serve")
	r.leads.setLeader(1, 2, 3, false)
	if l := r.Leads()[1]; l.Term != 3 || !l.Serving {
		t.Fatalf("an old election changed %+v", l)
	}
	r.leads.setLeader(1, 6, 0, false)
	check(false, "shard 1 lost its leader")
	r.leads.setLeader(sharding.ShardID(99), 1, 1, true) // unknown shards are ignored
}

// TestElectionKeepsReportedQuorum checks that an election does not change the
// quorum that was reported.
func TestElectionKeepsReportedQuorum(t *testing.T) {
	r := ShardRouter{}
	r.leads.init(1)
	if r.Leads()[1].Quorum {
		t.Fatal("a shard without a replica here has a quorum")
	}
	r.QuorumChanged(1, true)
	r.leads.setLeader(1, 3, 8, true)
	if l := r.Leads()[1]; !l.Quorum || !l.Self {
		t.Fatalf("after an election: %+v", l)
	}
	r.QuorumChanged(1, false)
	r.QuorumChanged(99, true) // unknown shards are ignored
	if l := r.Leads()[1]; l.Quorum || l.Leader != 8 {
		t.Fatalf("without a quorum: %+v", l)
	}
}
