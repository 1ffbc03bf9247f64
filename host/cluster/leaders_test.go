package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// world is a node's Leaders with its inputs.
type world struct {
	*Leaders
	state  *meta.State
	region *entity.ShardRouter
	reason sharding.StopReason
	silent map[sharding.NodeID]bool
}

// StopReason implements stopReasons.
func (w *world) StopReason(sharding.ShardID) sharding.StopReason { return w.reason }

// IsAlive implements liveness.
func (w *world) IsAlive(node sharding.NodeID) bool { return !w.silent[node] }

// newWorld returns node n1 of four nodes. It has a replica of shard 1 and none
// of shard 2.
func newWorld(t *testing.T) *world {
	t.Helper()
	state := meta.New()
	n := func(node sharding.NodeID) meta.Member {
		return meta.Member{Node: node, Address: string(node), Status: meta.StatusUp, Disk: "disk-" + string(node), Incarnation: 1}
	}
	for i, c := range [][]byte{
		meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 2}, n("n1")), meta.PutMember(n("n2")), meta.PutMember(n("n3")), meta.PutMember(n("n4")),
		meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n2", "n3"}}, meta.PlaceOn{Shard: 2, Nodes: []sharding.NodeID{"n2", "n3", "n4"}}),
	} {
		_, result, err := state.Apply(uint64(i+1), c)
		if err == nil {
			_, err = meta.DecodeResult(result)
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	r, err := entity.NewShardRouter(entity.ShardRouterOptions{Executors: 1, Shards: 2, Executor: entity.Options{Journal: noJournal{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	w := &world{state: state, region: r, silent: map[sharding.NodeID]bool{}}
	w.Leaders = NewLeaders("n1", r, w, w)
	return w
}

// If the replica on this node knows the leader, only that leader's node may
// lead. Otherwise any node with a replica may. The coordinator's report is
// not used.
func TestMayLead(t *testing.T) {
	w := newWorld(t)
	may := func(when string, shard sharding.ShardID, nodes string) {
		t.Helper()
		got := ""
		for _, node := range []sharding.NodeID{"n2", "n3", "n4"} {
			if w.MayLead(node, shard) {
				got += string(node)
			}
		}
		if got != nodes {
			t.Errorf("%s %q may lead shard %d, not %q", when, got, shard, nodes)
		}
	}
	may("before anything is known", 1, "")
	w.Learn(w.state.View(), 2)
	w.SetReported([]sharding.NodeID{"", "n4", "n4"})
	may("with a replica here that knows no leader", 1, "n2n3")
	may("without a replica here", 2, "n2n3n4")
	placement, _ := w.state.View().Placement(1)
	at, _ := placement.ReplicaOn("n2")
	w.region.LeaderChanged(1, 7, at.ID, false)
	may("with a replica here that follows", 1, "n2")
	w.reason = sharding.StopDamaged
	may("with a replica here that has stopped", 1, "n2n3")
	w.reason = sharding.NotStopped
	at, _ = placement.ReplicaOn("n1")
	w.region.LeaderChanged(1, 8, at.ID, true)
	may("while this node leads", 1, "")
}

// A node without a replica sees a quorum if it hears from a majority of the
// nodes with a replica, or from the leader alone.
func TestQuorumWithoutReplica(t *testing.T) {
	w := newWorld(t)
	leader := func() sharding.NodeID {
		node, _, _ := w.Leader(2)
		return node
	}
	if !w.Quorum(2) {
		t.Error("a shard of which nothing is known has no quorum")
	}
	w.Learn(w.state.View(), 2)
	if !w.Quorum(2) || len(w.Missing(2).Unreachable) != 0 {
		t.Error("with all of n2, n3 and n4 heard there is no quorum")
	}
	w.silent["n2"] = true
	if unheard := w.Missing(2).Unreachable; !w.Quorum(2) || !slices.Equal(unheard, []sharding.NodeID{"n2"}) {
		t.Errorf("with n3 and n4 heard: quorum %v, unheard %v", w.Quorum(2), unheard)
	}
	w.silent["n3"] = true
	if w.Quorum(2) {
		t.Error("n4 alone is a quorum of three")
	}
	w.SetReported([]sharding.NodeID{"", "", "n4"})
	if !w.Quorum(2) || leader() != "n4" {
		t.Errorf("a leader that is heard does not count: %q", leader())
	}
	w.SetReported([]sharding.NodeID{"", "", "n2"})
	if w.Quorum(2) || leader() != "" {
		t.Errorf("a leader that is not heard counts: %q", leader())
	}
}

// A follower that hears from the leader need not hear from the other voters.
// Some of them may be from a membership that this node's metadata does not have
// yet.
func TestQuorumOfFollower(t *testing.T) {
	w := newWorld(t)
	w.Learn(w.state.View(), 2)
	placement, _ := w.state.View().Placement(1)
	at := func(node sharding.NodeID) sharding.ReplicaID { r, _ := placement.ReplicaOn(node); return r.ID }
	quorum := func(when string, want bool) {
		t.Helper()
		if got := w.Quorum(1); got != want {
			t.Errorf("%s: quorum %v", when, got)
		}
	}
	quorum("no leader, and too few are heard", false)
	w.silent["n3"] = true
	w.region.LeaderChanged(1, 7, at("n2"), false)
	quorum("the leader is heard", true)
	w.SetStalled(true)
	quorum("the groups here stand still", false)
	w.SetStalled(false)
	w.silent["n2"] = true
	quorum("the leader is not heard", false)
	w.silent["n2"] = false
	w.region.LeaderChanged(1, 8, at("n1"), true)
	quorum("this node leads, and hears too few", false)
}

// A stopped replica knows no quorum, so its node counts the other nodes, and
// its own vote if the replica still votes.
func TestQuorumWithStoppedReplica(t *testing.T) {
	w := newWorld(t)
	w.Learn(w.state.View(), 2)
	for _, c := range []struct {
		stopped sharding.StopReason
		silent  bool // n3 is suspected
		quorum  bool
	}{
		{sharding.StopDamaged, false, true}, {sharding.StopDamaged, true, false}, {sharding.StopUnsupported, true, true},
	} {
		w.reason, w.silent["n3"] = c.stopped, c.silent
		if got := w.Quorum(1); got != c.quorum {
			t.Errorf("stopped: %v, n3 silent: %v: quorum %v", c.stopped, c.silent, got)
		}
	}
}

// noJournal is the journal of an executor that never proposes anything.
type noJournal struct{}

func (noJournal) Propose(sharding.ShardID, sharding.Term, uint64, []byte) error {
	return errors.New("nothing is proposed")
}
func (noJournal) ReadIndex(sharding.ShardID, uint64) error { return errors.New("nothing is read") }
func (noJournal) Busy() bool                               { return false }

// Voters whose disks are lost count as voters until a leader removes them,
// although their nodes are heard from. If a majority of them is lost there is
// no quorum, and Missing names them.
func TestLostMajorityIsNoQuorum(t *testing.T) {
	w := newWorld(t)
	w.Learn(w.state.View(), 2)
	w.region.QuorumChanged(1, true)
	lose := func(node sharding.NodeID) {
		t.Helper()
		_, result, _ := w.state.Apply(w.state.View().Index()+1, meta.Join(meta.Member{Node: node, Address: string(node), Disk: "another", Incarnation: 2}))
		if _, err := meta.DecodeResult(result); err != nil {
			t.Fatal(err)
		}
		w.Learn(w.state.View(), 2)
	}
	lose("n2")
	for _, shard := range []sharding.ShardID{1, 2} {
		if !w.Quorum(shard) || len(w.Missing(shard).Lost) > 0 {
			t.Errorf("shard %d with two of three: %v, %+v", shard, w.Quorum(shard), w.Missing(shard))
		}
	}
	lose("n3")
	for _, shard := range []sharding.ShardID{1, 2} {
		missing := w.Missing(shard)
		if w.Quorum(shard) || !slices.Equal(missing.Lost, []sharding.NodeID{"n2", "n3"}) {
			t.Errorf("shard %d with one of three: %v, %+v", shard, w.Quorum(shard), missing)
		}
		if err := (&sharding.NotLeaderError{Shard: shard, Missing: missing}).Error(); !strings.Contains(err, "lost a majority of its voters with the disks of n2, n3") {
			t.Error(err)
		}
	}
	placement, _ := w.state.View().Placement(1)
	at, _ := placement.ReplicaOn("n1")
	w.region.LeaderChanged(1, 7, at.ID, true)
	if !w.Quorum(1) {
		t.Error("a leader that hears a quorum has none")
	}
}
