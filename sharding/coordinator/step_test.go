package coordinator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// calmWorld is the model without faults: hosts that have joined, and a policy.
func calmWorld(t *testing.T, hosts, minMembers int) *world {
	t.Helper()
	w := newWorld(7, sabotage{})
	w.quiet = true
	w.propose(meta.PutPolicy(meta.Policy{Replication: 3, MinMembers: minMembers, Rebalance: true}))
	for range hosts - 1 {
		w.addHost()
	}
	for _, h := range w.hosts {
		h.zone = ""
	}
	return w
}

// until runs the world until the condition holds.
func (w *world) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 2000 {
		if w.fault != "" {
			t.Fatal(w.fault)
		}
		if holds() {
			return
		}
		w.tick()
	}
	t.Fatalf("never: %s; %s", what, w.unsettled())
}

func (w *world) whole() bool { return w.unsettled() == "" }

func (w *world) leaderOf(s sharding.ShardID) sharding.NodeID {
	if g := w.groups[s]; g != nil && g.lead() != nil {
		return g.lead().node.id
	}
	return ""
}

// ask issues an operation and waits until it is done.
func (w *world) ask(t *testing.T, o coordinator.Operation) coordinator.Progress {
	t.Helper()
	taken := -1
	w.until(t, fmt.Sprintf("order %+v", o), func() bool {
		if w.stats["coordinators"] != taken { // an operation ends with its coordinator
			taken = w.stats["coordinators"]
			o.ID = uint64(len(w.done)) + 1000*uint64(taken)
			w.operations = append(w.operations, o)
		}
		return w.done[o.ID].Done
	})
	return w.done[o.ID]
}

func TestPlacementWaitsForMinMembers(t *testing.T) {
	w := calmWorld(t, 2, 3)
	for range 100 {
		w.tick()
		if p := w.state.View().Placements(); len(p) > 1 {
			t.Fatalf("placed with two of three members: %+v", p)
		}
	}
	w.addHost()
	w.until(t, "placed", func() bool { return len(w.state.View().Placements()) == shards+1 })
	for _, p := range w.state.View().Placements()[1:] {
		if len(p.First) != 3 {
			t.Errorf("shard %d begins with voters %v", p.Shard, p.First)
		}
	}
	w.until(t, "whole", w.whole)
}

// A cluster grows from one node to two and then three. Two storage nodes have a
// voter and a learner; then a single joint change promotes both learners.
func TestReplicasGrowWithStorageNodes(t *testing.T) {
	w := calmWorld(t, 1, 1)
	w.until(t, "whole", w.whole)
	w.addHost()
	w.until(t, "a learner", func() bool {
		for s := range sharding.ShardID(shards + 1) {
			if g := w.groups[s]; len(g.confOf(g.lead()).learners) != 1 {
				return false
			}
		}
		return w.whole()
	})
	w.addHost()
	w.until(t, "whole", func() bool { return w.whole() && len(w.groups[0].confOf(w.groups[0].lead()).voters) == 3 })
	for s := range sharding.ShardID(shards + 1) {
		var votes []string
		for _, c := range w.groups[s].confs {
			if text := fmt.Sprint(len(c.outgoing), ">", len(c.voters)); len(votes) == 0 || votes[len(votes)-1] != text {
				votes = append(votes, text)
			}
		}
		if got := strings.Join(votes, " "); got != "0>1 1>3 0>3" {
			t.Errorf("shard %d went %s", s, got)
		}
	}
}

func TestMoveToVoterTransfersLeadership(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	changes := w.stats["changes"]
	for _, h := range w.hosts {
		if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 2, Node: h.id}); p.Err != nil || w.leaderOf(2) != h.id {
			t.Fatalf("%+v, and %s leads", p, w.leaderOf(2))
		}
		for range 50 {
			w.tick()
		}
		if w.leaderOf(2) != h.id {
			t.Fatalf("moved to %s, and %s leads", h.id, w.leaderOf(2))
		}
	}
	if w.stats["changes"] != changes {
		t.Error("members were changed")
	}
}

// An operation that asks a node to lead is not done if the node leads only
// until a pending transfer completes.
func TestMoveBackDuringTransfer(t *testing.T) {
	for ticks := range 12 {
		w := calmWorld(t, 3, 3)
		w.until(t, "whole", w.whole)
		from := w.leaderOf(2)
		away := w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.id != from })].id
		w.operations = append(w.operations, coordinator.Operation{ID: 1 << 40, Kind: coordinator.OperationMove, Shard: 2, Node: away})
		for range ticks {
			w.tick()
		}
		if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 2, Node: from}); p.Err != nil {
			t.Fatalf("%d ticks later: %+v", ticks, p)
		}
		for range 50 {
			w.tick()
		}
		if w.leaderOf(2) != from {
			t.Errorf("ordered back to %s after %d ticks, and %s leads", from, ticks, w.leaderOf(2))
		}
	}
}

func TestMoveToNodeWithoutReplicaMovesOne(t *testing.T) {
	w := calmWorld(t, 5, 5)
	w.until(t, "whole", w.whole)
	p, _ := w.state.View().Placement(1)
	to := w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { _, on := p.ReplicaOn(h.id); return !on })]
	if got := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: to.id}); got.Err != nil || w.leaderOf(1) != to.id {
		t.Fatalf("%+v, and %s leads", got, w.leaderOf(1))
	}
	w.until(t, "whole", w.whole)
	if w.leaderOf(1) != to.id {
		t.Errorf("%s leads", w.leaderOf(1))
	}
}

func TestMoveBetweenTwoHosts(t *testing.T) {
	w := calmWorld(t, 2, 2)
	w.until(t, "whole", w.whole)
	from := w.leaderOf(1)
	to := sharding.NodeID("n1")
	if from == to {
		to = "n2"
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: to}); p.Err != nil || w.leaderOf(1) != to {
		t.Fatalf("%+v, and %s leads", p, w.leaderOf(1))
	}
	w.until(t, "one voter and a learner", func() bool {
		p, _ := w.state.View().Placement(1)
		c := w.groups[1].confOf(w.groups[1].lead())
		return len(p.Replicas) == 2 && len(c.voters) == 1 && len(c.learners) == 1
	})
}

func TestImpossibleMovesAreRejected(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	for _, o := range []coordinator.Operation{
		{Kind: coordinator.OperationMove, Shard: 1, Node: "n9"}, {Kind: coordinator.OperationMove, Shard: 99, Node: "n1"}, {Kind: coordinator.OperationDrain, Node: "n9"}, {Kind: 99, Node: "n1"},
	} {
		if p := w.ask(t, o); !errors.Is(p.Err, coordinator.ErrRefused) {
			t.Errorf("%+v: %+v", o, p)
		}
	}
	w.ask(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n2"})
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: "n2"}); !errors.Is(p.Err, coordinator.ErrRefused) {
		t.Errorf("to a node that is drained: %+v", p)
	}
}

func TestDrainMovesLeadersButNoReplicas(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	changes := w.stats["changes"]
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n1"}); p.Err != nil || p.Remaining != 0 {
		t.Fatalf("%+v", p)
	}
	for range 100 {
		for s := range sharding.ShardID(shards + 1) {
			if w.leaderOf(s) == "n1" {
				t.Fatalf("n1 leads shard %d", s)
			}
		}
		w.tick()
	}
	if w.stats["changes"] != changes {
		t.Error("members were changed")
	}
}

// A drain continues under any coordinator, until it is canceled or the node
// restarts.
func TestDrainOutlivesItsCoordinator(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n2"}); p.Err != nil || !p.Durable {
		t.Fatalf("%+v", p)
	}
	leads := func(node sharding.NodeID) bool {
		for s := range sharding.ShardID(shards + 1) {
			if w.leaderOf(s) == node {
				return true
			}
		}
		return false
	}
	drained := func(when string) {
		t.Helper()
		for range 3 { // each time with a new coordinator
			w.coord, w.at = nil, nil
			for range 40 {
				if w.tick(); leads("n2") {
					t.Fatalf("n2 leads %s", when)
				}
			}
		}
	}
	drained("after a change of the coordinator")
	w.hosts[0].running = false
	w.until(t, "n3 leads", func() bool { return w.leaderOf(1) == "n3" && !leads("n2") })
	w.restart(w.hosts[0])
	w.until(t, "n1 leads", func() bool { return leads("n1") })
	drained("after another node came back")
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: "n2"}); p.Err != nil {
		t.Fatalf("%+v", p)
	}
	w.until(t, "n2 leads", func() bool { return leads("n2") })
	w.ask(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n2"})
	drained("drained again")
	w.hosts[1].running = false
	w.tick()
	w.restart(w.hosts[1])
	w.until(t, "n2 leads after its start", func() bool { return leads("n2") })
}

// Replicas on a drained node can vote if there is no alternative: a drain moves
// leaderships, but does not leave a shard short of voters.
func TestDrainedNodeKeepsItsVotes(t *testing.T) {
	w := calmWorld(t, 4, 3)
	w.until(t, "whole", w.whole)
	var spare sharding.NodeID
	p, _ := w.state.View().Placement(0)
	for _, r := range p.Replicas {
		if r.State == meta.ReplicaLearner {
			spare = r.Node
		}
	}
	w.ask(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: spare})
	var leaves *host
	for _, h := range w.hosts {
		if h.id != spare && w.leaderOf(0) != h.id {
			leaves = h
		}
	}
	held := func(node sharding.NodeID) (n int) {
		for _, p := range w.state.View().Placements() {
			if _, on := p.ReplicaOn(node); on {
				n++
			}
		}
		return n
	}
	before := held(spare)
	leaves.leaving = true
	w.operations = append(w.operations, coordinator.Operation{ID: 77, Kind: coordinator.OperationLeave, Node: leaves.id})
	w.until(t, "it votes on the metadata", func() bool {
		p, _ := w.state.View().Placement(0)
		r, _ := p.ReplicaOn(spare)
		return r.State == meta.ReplicaVoter
	})
	for range 200 {
		if w.tick(); w.leaderOf(0) == spare {
			t.Fatal("it leads the metadata")
		}
	}
	if now := held(spare); now > before {
		t.Errorf("it holds %d replicas, %d when it was drained", now, before)
	}
	w.ask(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: spare})
	w.until(t, "it has left", func() bool { _, member := w.state.View().Member(leaves.id); return !member })
}

// A leaving node ends up without replicas and is removed: with a spare node,
// without a spare node, and down to a single node.
func TestLeavingNodeIsRemoved(t *testing.T) {
	w := calmWorld(t, 4, 3)
	w.until(t, "whole", w.whole)
	for _, h := range []int{0, 2, 1} {
		h := w.hosts[h]
		h.leaving = true
		if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationLeave, Node: h.id}); p.Err != nil {
			t.Fatalf("%s: %+v", h.id, p)
		}
		w.until(t, "left", func() bool { _, member := w.state.View().Member(h.id); return !member })
		h.running = false
		w.until(t, "whole", w.whole)
	}
	for _, p := range w.state.View().Placements() {
		if len(p.Replicas) != 1 || p.Replicas[0].Node != "n4" || p.Replicas[0].State != meta.ReplicaVoter {
			t.Errorf("%+v", p)
		}
	}
}

// A dead node is replaced after deadAfter, not before; a node that an operator
// declares down is replaced immediately.
func TestDeadNodeIsReplaced(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		w := calmWorld(t, 4, 3)
		w.until(t, "whole", w.whole)
		dead := w.hosts[3]
		dead.running, dead.dead = false, true
		began := w.now
		if ordered {
			w.operations = append(w.operations, coordinator.Operation{ID: 1, Kind: coordinator.OperationDown, Node: dead.id})
		}
		w.until(t, "down", func() bool { m, known := w.state.View().Member(dead.id); return !known || m.Status == meta.StatusDown })
		if took := w.now.Sub(began); ordered != (took < modelDead) {
			t.Errorf("ordered %v: down after %v", ordered, took)
		}
		w.until(t, "whole", func() bool { _, known := w.state.View().Member(dead.id); return !known && w.whole() })
	}
}

// A coordinator that reaches less than a majority considers no node dead.
func TestMinorityDeclaresNoNodeDead(t *testing.T) {
	c := coordinator.New(coordinator.Options{DeadAfter: time.Second})
	s := meta.New()
	apply(t, s, meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1}, meta.Member{Node: "n1", Address: "a", Status: meta.StatusUp, Disk: "1", Incarnation: 1}))
	for _, n := range []sharding.NodeID{"n2", "n3", "n4"} {
		apply(t, s, meta.PutMember(meta.Member{Node: n, Address: "a", Status: meta.StatusUp, Disk: "1", Incarnation: 1}))
	}
	heard := map[sharding.NodeID]bool{"n1": true, "n2": true}
	for i := range 10 {
		for _, cmd := range c.Step(coordinator.Input{Now: time.Unix(int64(100+i), 0), View: s.View(), Reachable: heard}).Commands {
			t.Fatalf("second %d: %s", i, cmd)
		}
	}
	heard["n3"] = true
	c.Step(coordinator.Input{Now: time.Unix(200, 0), View: s.View(), Reachable: heard})
	plan := c.Step(coordinator.Input{Now: time.Unix(202, 0), View: s.View(), Reachable: heard})
	if want := string(meta.SetStatus("n4", 1, meta.StatusDown)); len(plan.Commands) != 1 || string(plan.Commands[0]) != want {
		t.Fatalf("got %s, want %s", plan.Commands, want)
	}
}

// The cluster's policy overrides the coordinator's configuration.
func TestPolicySetsDeadAfter(t *testing.T) {
	c := coordinator.New(coordinator.Options{DeadAfter: time.Second})
	s := meta.New()
	founder := meta.Member{Node: "n1", Address: "a", Status: meta.StatusUp, Disk: "1", Incarnation: 1, Speaks: sharding.SupportedVersions}
	apply(t, s, meta.CreateClusterUnder(meta.Policy{Replication: 3, MinMembers: 1, DeadAfter: time.Minute}, meta.Cluster{ID: "c", Format: 1, Shards: 1}, founder))
	for _, n := range []sharding.NodeID{"n2", "n3"} {
		m := founder
		m.Node = n
		apply(t, s, meta.PutMember(m))
	}
	down := string(meta.SetStatus("n3", 1, meta.StatusDown))
	for _, second := range []int64{100, 105, 159, 161} {
		plan := c.Step(coordinator.Input{Now: time.Unix(second, 0), View: s.View(), Reachable: map[sharding.NodeID]bool{"n1": true, "n2": true}})
		said := slices.ContainsFunc(plan.Commands, func(c []byte) bool { return string(c) == down })
		if said != (second > 160) {
			t.Errorf("second %d: %s", second, plan.Commands)
		}
	}
}

// Reports of earlier incarnations, reordered reports and leaders of earlier
// terms are ignored.
func TestOutdatedReportsAreIgnored(t *testing.T) {
	s := meta.New()
	member := func(n sharding.NodeID, inc uint64) meta.Member {
		return meta.Member{Node: n, Address: "a", Status: meta.StatusUp, Disk: "1", Incarnation: inc}
	}
	apply(t, s, meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1}, member("n1", 5)), meta.PutMember(member("n2", 5)), meta.PutMember(member("n3", 5)),
		meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n2", "n3"}}))
	all := map[sharding.NodeID]bool{"n1": true, "n2": true, "n3": true}
	leads := func(n sharding.NodeID, inc, seq uint64, term sharding.Term, leader, draining bool) coordinator.Report {
		p, _ := s.View().Placement(1)
		r, _ := p.ReplicaOn(n)
		return coordinator.Report{Node: n, Incarnation: inc, Seq: seq, Draining: draining, Shards: []coordinator.ShardReport{{
			Shard: 1, Replica: r.ID, Term: term, Leader: leader, Commit: 9, Applied: 9, Last: 9, Voters: p.First,
			Match: map[sharding.ReplicaID]uint64{p.First[0]: 9, p.First[1]: 9, p.First[2]: 9}}}}
	}
	tests := []struct {
		name    string
		reports []coordinator.Report
		want    string
	}{
		{"a drain", []coordinator.Report{leads("n1", 5, 1, 3, true, true)}, "n1>n2"},
		{"of an earlier start", []coordinator.Report{leads("n1", 4, 1, 3, true, true)}, ""},
		{"of a start that did not join", []coordinator.Report{leads("n1", 6, 1, 3, true, true)}, ""},
		{"overtaken", []coordinator.Report{leads("n1", 5, 2, 3, false, false), leads("n1", 5, 1, 3, true, true)}, ""},
		{"of an earlier term", []coordinator.Report{leads("n1", 5, 1, 3, true, true), leads("n2", 5, 1, 4, true, false)}, ""},
		{"of a term that has ended", []coordinator.Report{leads("n1", 5, 1, 3, true, true), leads("n3", 5, 1, 4, false, false)}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reports := slices.Clone(tt.reports)
			for _, n := range []sharding.NodeID{"n1", "n2", "n3"} {
				if !slices.ContainsFunc(reports, func(r coordinator.Report) bool { return r.Node == n }) {
					reports = append(reports, coordinator.Report{Node: n, Incarnation: 5, Seq: 1})
				}
			}
			plan := coordinator.New(coordinator.Options{}).Step(coordinator.Input{Now: time.Unix(100, 0), View: s.View(), Reachable: all, Reports: reports})
			var got []string
			for _, tr := range plan.Transfers {
				got = append(got, fmt.Sprintf("%s>%s", tr.From, tr.To))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// A proxy has only a replica of the metadata shard.
func TestProxiesHoldNoData(t *testing.T) {
	w := calmWorld(t, 4, 3)
	w.until(t, "whole", w.whole)
	proxy := w.hosts[3]
	if _, known := w.state.View().Member(proxy.id); !known {
		t.Fatal("n4 is no member")
	}
	m, _ := w.state.View().Member(proxy.id)
	m.Roles = []string{meta.RoleProxy}
	w.propose(meta.PutMember(m))
	w.until(t, "no data on the proxy", func() bool {
		for s := sharding.ShardID(1); s <= shards; s++ {
			if p, _ := w.state.View().Placement(s); w.groups[s].on(proxy) != nil || len(p.Replicas) != 3 {
				return false
			}
		}
		p, _ := w.state.View().Placement(0)
		_, on := p.ReplicaOn(proxy.id)
		return on
	})
}
