package raftgroup

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// TestLeaderLeavesJointMembershipAfterFailedTransfer: a leader applies a joint
// membership while it transfers its leadership, and stays leader because the
// transferee never gets the request. It leaves the joint membership without
// waiting for another entry.
func TestLeaderLeavesJointMembershipAfterFailedTransfer(t *testing.T) {
	d := newEmptyDrill(t, 4)
	for _, n := range d.nodes[:3] {
		n.create(GroupConfig{Shard: 1, Replica: d.replica(1, n.i), Voters: d.replicas(1)[:3]})
	}
	n := d.lead(1, 0)
	d.write(1, "before", 0, 1, 2)
	term := n.sink.leader(1).Term
	core, g := n.driver.Core(), n.group(1)
	d.cut[[2]int{0, 1}] = true
	err := core.ChangeMembers(1, term, Change{AddLearners: []sharding.ReplicaID{d.replica(1, 3)}, Remove: []sharding.ReplicaID{d.replica(1, 2)}})
	if err == nil {
		err = core.TransferLeader(1, d.replica(1, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.settle()
	if !g.isJoint() || g.applied != g.log.Last() || !g.isTransferring() {
		t.Fatalf("joint %v, applied %d of %d, handing over %v", g.isJoint(), g.applied, g.log.Last(), g.isTransferring())
	}
	d.until("the attempt is given up", 60, func() bool { return !g.isTransferring() })
	delete(d.cut, [2]int{0, 1})
	d.until("the membership is left", 60, func() bool { return !g.isJoint() })
	if l := d.leader(1); l != n || l.sink.leader(1).Term != term {
		t.Errorf("node %d leads, in term %d", l.i, l.sink.leader(1).Term)
	}
	d.write(1, "after", 0, 1)
}
