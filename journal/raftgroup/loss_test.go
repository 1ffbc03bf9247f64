package raftgroup

import (
	"errors"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// TestReplicaFromOutdatedCopyStops restores the disk of a follower from a copy
// that was made while the follower ran, so that it lacks entries which it has
// acknowledged since. The leader would never send them again. The replica must
// notice and stop as damaged instead of waiting and voting.
func TestReplicaFromOutdatedCopyStops(t *testing.T) {
	d := newEmptyDrill(t, 3)
	d.contain = true
	for _, n := range d.nodes {
		n.restart()
	}
	d.fill(2)
	d.until("leaders", 60, func() bool { return d.led(2) })
	d.lead(1, 0)
	d.lead(2, 0)
	d.write(1, "before the copy", 0, 1, 2)
	d.write(2, "before the copy", 0, 1, 2)
	follower := d.nodes[2]
	copied := follower.fs.Clone()
	d.write(1, "after the copy", 0, 1, 2)

	follower.fs.Kill()
	follower.fs, follower.inbox, follower.machine = copied, nil, newMachine()
	follower.start()
	d.until("the follower stops", 60, func() bool { return len(follower.failed) > 0 })

	if f := follower.failed; len(f) != 1 || f[0].Shard != 1 || !errors.Is(f[0].Err, ErrEntriesLost) {
		t.Fatalf("failures of the follower: %v", f)
	}
	core := follower.driver.Core()
	if st, err := core.Status(1); err != nil || st.Stopped != sharding.StopDamaged {
		t.Errorf("shard 1, which lost entries: %+v, %v", st, err)
	}
	if st, err := core.Status(2); err != nil || st.Stopped != sharding.NotStopped {
		t.Errorf("shard 2, which lost none: %+v, %v", st, err)
	}
	d.write(1, "later", 0, 1)
	d.write(2, "later", 0, 1, 2)
	// The damaged replica gives no vote: n1 alone cannot lead shard 1.
	d.nodes[0].up = false
	for range 60 {
		d.beat()
	}
	if l := d.leader(1); l == d.nodes[1] || l == follower {
		t.Errorf("node %d leads shard 1 with the vote of a replica that lost entries", l.i)
	}
}

// TestForgedHeartbeatsDoNotStopReplica: neither many heartbeats of another replica
// nor a burst of them in the leader's name look like a loss.
func TestForgedHeartbeatsDoNotStopReplica(t *testing.T) {
	for name, from := range map[string]int{"another replica": 2, "the leader": 1} {
		d := newDrill(t, 3, 1)
		d.until("leader", 60, func() bool { return d.led(1) })
		d.lead(1, 1)
		d.write(1, "before", 0, 1, 2)
		core := d.nodes[0].driver.Core()
		g := core.groups[1]
		for range 10 * maxLossSigns {
			core.Step(d.name(from), wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(d.replica(1, from))), To: new(g.replica), Term: new(g.hard.Term), Commit: new(g.log.Last() + 1)}})
			if from == 2 {
				d.beat()
			}
		}
		if st, err := core.Status(1); err != nil || st.Stopped != sharding.NotStopped {
			t.Errorf("%s: status %+v, %v", name, st, err)
		}
	}
}

// TestHeartbeatsThatAgreeResetLossDetection sends more than enough forged
// heartbeats, but never as many in a row without one of the leader.
func TestHeartbeatsThatAgreeResetLossDetection(t *testing.T) {
	d := newDrill(t, 3, 1)
	d.until("leader", 60, func() bool { return d.led(1) })
	d.lead(1, 1)
	d.write(1, "before", 0, 1, 2)
	core := d.nodes[0].driver.Core()
	g := core.groups[1]
	heartbeat := func(commit uint64) {
		core.Step("n1", wire.Message{Shard: 1, Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(d.replica(1, 1))), To: new(g.replica), Term: new(g.hard.Term), Commit: new(commit)}})
	}
	for range 3 {
		for range maxLossSigns - 1 {
			heartbeat(g.log.Last() + 1)
		}
		heartbeat(g.log.Last())
		d.settle()
	}
	if st, err := core.Status(1); err != nil || st.Stopped != sharding.NotStopped {
		t.Errorf("status %+v, %v", st, err)
	}
	d.write(1, "after", 0, 1, 2)
	if !slices.Contains(d.nodes[0].machine.data(1), "after") {
		t.Error("the replica does not follow its leader")
	}
}
