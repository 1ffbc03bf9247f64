package cluster

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// allAlive are peers of which none is suspected.
type allAlive struct{ peers }

func (allAlive) IsAlive(sharding.NodeID) bool { return true }

// Nodes report at random, and others receive the changes now and then. Each
// of these must have the same view as a node that receives the whole view.
func TestViewChangesConverge(t *testing.T) {
	const nodes, shards, seeds = 4, 12, 50
	moved := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := &leading{m: &Member{opts: Options{Peers: allAlive{}}}, term: 3, latest: map[sharding.NodeID]arrival{}}
		terms := map[sharding.ShardID]sharding.Term{}
		leads := map[sharding.ShardID]int{}
		told := make([]*ClusterView, nodes)
		known := make([]uint64, nodes)
		for i := range told {
			told[i] = &ClusterView{}
		}
		for range 200 {
			if rng.IntN(3) == 0 { // an election
				id := sharding.ShardID(1 + rng.IntN(shards))
				terms[id]++
				leads[id] = rng.IntN(nodes + 1) // or nobody wins
				moved++
			}
			at := rng.IntN(nodes)
			o := observed{Report: coordinator.Report{Node: name(at), Replicas: uint32(rng.IntN(3))}, sizes: map[sharding.ShardID]size{}}
			for id, node := range leads {
				if node == at {
					o.Shards = append(o.Shards, coordinator.ShardReport{Shard: id, Term: terms[id], Leader: true, Voters: []sharding.ReplicaID{1, 2}})
					o.sizes[id] = size{1, 2, rng.Uint64()}
				}
			}
			before := l.latest[o.Node].observed
			l.latest[o.Node] = arrival{o, time.Now()}
			l.viewChanges.take(before, o)
			if rng.IntN(10) == 0 {
				l.impairments, l.viewChanges.stale = nil, true
				if rng.IntN(2) == 0 {
					l.impairments = []coordinator.Impairment{{Node: name(rng.IntN(nodes)), Slow: true, Until: time.Unix(int64(rng.IntN(3)), 0), Cooldown: time.Second}}
				}
			}
			to := rng.IntN(nodes)
			answer := &peerv1.ReportResponse{}
			l.show(answer, known[to], true)
			if answer.GetPicture() != known[to] {
				told[to], known[to] = told[to].with(answer), answer.GetPicture()
			} else if len(answer.GetShards())+len(answer.GetNodes()) > 0 {
				t.Fatalf("seed %d: told what it has: %v", seed, answer)
			}
			whole := &peerv1.ReportResponse{}
			l.show(whole, 0, true)
			want := (&ClusterView{}).with(whole)
			if !maps.EqualFunc(told[to].Shards, want.Shards, sameShard) || !reflect.DeepEqual(told[to].Nodes, want.Nodes) {
				t.Fatalf("seed %d: told\n%v, want\n%v", seed, told[to], want)
			}
			old := &peerv1.ReportResponse{}
			l.show(old, 0, false)
			if with := (&ClusterView{}).with(old); len(with.Shards) != len(want.Shards) || !slices.IsSortedFunc(old.GetShards(), func(a, b *peerv1.ShardState) int {
				return int(a.GetShardId()) - int(b.GetShardId())
			}) {
				t.Fatalf("seed %d: a node of a release before is told %v, want %v", seed, with, want)
			}
		}
		// Once all nodes have reported, the view must contain the current
		// leaders.
		for at := range nodes {
			o := observed{Report: coordinator.Report{Node: name(at)}}
			for id, node := range leads {
				if node == at {
					o.Shards = append(o.Shards, coordinator.ShardReport{Shard: id, Term: terms[id], Leader: true})
				}
			}
			before := l.latest[o.Node].observed
			l.latest[o.Node] = arrival{o, time.Now()}
			l.viewChanges.take(before, o)
		}
		for at := range nodes { // an old leader in a lower term may have kept a shard out of the view
			l.viewChanges.take(l.latest[name(at)].observed, l.latest[name(at)].observed)
		}
		whole := &peerv1.ReportResponse{}
		l.show(whole, 0, true)
		for id, node := range leads {
			if got := (&ClusterView{}).with(whole).Shards[id].Leader; node < nodes && got != name(node) {
				t.Fatalf("seed %d: shard %d is led by %q, want %q", seed, id, got, name(node))
			}
		}
	}
	if moved < seeds {
		t.Fatal("hardly any leadership moved")
	}
}

func name(i int) sharding.NodeID { return sharding.NodeID(rune('a' + i)) }

func sameShard(a, b ShardState) bool {
	return a.Leader == b.Leader && a.Term == b.Term && slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Learners, b.Learners)
}

// The coordinator's penalties reach the other nodes unchanged.
func TestImpairmentsReachOtherNodes(t *testing.T) {
	until := time.UnixMilli(1_234_567)
	l := &leading{m: &Member{opts: Options{Peers: allAlive{}}}, term: 3, latest: map[sharding.NodeID]arrival{}}
	for i := range 3 {
		l.latest[name(i)] = arrival{observed{Report: coordinator.Report{Node: name(i)}}, time.Now()}
	}
	l.impairments = []coordinator.Impairment{{Node: "a", Slow: true, Cooldown: 20 * time.Second}, {Node: "c", Until: until, Cooldown: 10 * time.Second, Damages: 2}}
	l.viewChanges.stale = true
	out := &peerv1.ReportResponse{}
	l.show(out, 0, true)
	got := (&ClusterView{}).with(out).Nodes
	want := map[sharding.NodeID]*Impairment{"a": {Slow: true, Cooldown: 20 * time.Second}, "b": nil, "c": {Until: until, Cooldown: 10 * time.Second, Damages: 2}}
	for node, trouble := range want {
		if !reflect.DeepEqual(got[node].Impairment, trouble) {
			t.Errorf("of %s the picture says %+v, want %+v", node, got[node].Impairment, trouble)
		}
	}
}

func TestFullDiskReachesOtherNodes(t *testing.T) {
	l := &leading{m: &Member{opts: Options{Peers: allAlive{}}}, term: 3, latest: map[sharding.NodeID]arrival{}}
	for i, full := range []bool{true, false} {
		o := reportFromWire(reportToWire(observed{Report: coordinator.Report{Node: name(i), Full: full, Reachable: []sharding.NodeID{"a", "b"}}}, false, 0))
		if !slices.Equal(o.Reachable, []sharding.NodeID{"a", "b"}) {
			t.Errorf("%s hears %v", o.Node, o.Reachable)
		}
		l.latest[name(i)] = arrival{o, time.Now()}
	}
	l.viewChanges.stale = true
	out := &peerv1.ReportResponse{}
	l.show(out, 0, true)
	if got := (&ClusterView{}).with(out).Nodes; !got["a"].Full || got["b"].Full {
		t.Errorf("%+v", got)
	}
}

// Every node receives the pending orders, and keeps them when an answer
// contains only other changes.
func TestPendingOrdersReachNodes(t *testing.T) {
	l := &leading{m: &Member{opts: Options{Peers: allAlive{}}}, term: 3, latest: map[sharding.NodeID]arrival{}}
	l.latest["a"] = arrival{observed{Report: coordinator.Report{Node: "a"}}, time.Now()}
	view, known := &ClusterView{}, uint64(0)
	answer := func() {
		out := &peerv1.ReportResponse{}
		l.show(out, known, true)
		if out.GetPicture() != known {
			view, known = view.with(out), out.GetPicture()
		}
	}
	want := []coordinator.Pending{
		{Kind: coordinator.PendingReplication, Remaining: 7, Reason: "a replica of shard 3 is being copied"},
		{Kind: coordinator.PendingMove, Node: "b", Shard: 4, Remaining: 1, Reason: "the leadership is being transferred"},
	}
	l.pending, l.viewChanges.stale = want, true
	answer()
	if !reflect.DeepEqual(view.Pending, want) {
		t.Fatalf("the node knows of %+v", view.Pending)
	}
	l.viewChanges.take(observed{}, observed{Report: coordinator.Report{Node: "a", Shards: []coordinator.ShardReport{{Shard: 1, Leader: true, Term: 2}}}})
	l.viewChanges.stale = false
	if answer(); !reflect.DeepEqual(view.Pending, want) || view.Shards[1].Leader != "a" {
		t.Fatalf("after another change the node knows of %+v", view)
	}
	l.pending, l.viewChanges.stale = nil, true
	if answer(); len(view.Pending) != 0 {
		t.Errorf("done orders are still shown: %+v", view.Pending)
	}
}
