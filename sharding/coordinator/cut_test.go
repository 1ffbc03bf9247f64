package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// cutWorld is a cluster of four nodes, coordinated by n1, which cannot reach
// n4.
type cutWorld struct {
	c     *coordinator.Coordinator
	s     *meta.State
	at    int64
	heard map[sharding.NodeID][]sharding.NodeID // reachable nodes, by reporting node
}

func newCutWorld(t *testing.T) *cutWorld {
	t.Helper()
	s := meta.New()
	member := func(n sharding.NodeID) meta.Member {
		return meta.Member{Node: n, Address: "a", Status: meta.StatusUp, Disk: "1", Incarnation: 5}
	}
	apply(t, s, meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1}, member("n1")))
	for _, n := range []sharding.NodeID{"n2", "n3", "n4"} {
		m := member(n)
		m.Status = ""
		apply(t, s, meta.Join(m), meta.SetStatus(n, 5, meta.StatusUp))
	}
	p, _ := s.View().Placement(sharding.MetaShard)
	apply(t, s, meta.ChangeReplicas(meta.Change{Shard: sharding.MetaShard, Promote: []sharding.ReplicaID{p.Replicas[1].ID, p.Replicas[2].ID}}))
	return &cutWorld{c: coordinator.New(coordinator.Options{DeadAfter: 10 * time.Second}), s: s, at: 100, heard: map[sharding.NodeID][]sharding.NodeID{}}
}

// step advances by one second, in which the reachable nodes report.
func (w *cutWorld) step() coordinator.Plan {
	w.at++
	p, _ := w.s.View().Placement(sharding.MetaShard)
	group := coordinator.ShardReport{Shard: sharding.MetaShard, Replica: p.Replicas[0].ID, Term: 3, Leader: true, Commit: 9, Applied: 9, Last: 9, Match: map[sharding.ReplicaID]uint64{}}
	for _, r := range p.Replicas {
		group.Match[r.ID] = 9
		if r.State == meta.ReplicaVoter {
			group.Voters = append(group.Voters, r.ID)
		} else {
			group.Learners = append(group.Learners, r.ID)
		}
	}
	in := coordinator.Input{Now: time.Unix(w.at, 0), View: w.s.View(), Reachable: map[sharding.NodeID]bool{"n1": true, "n2": true, "n3": true}}
	for _, n := range []sharding.NodeID{"n1", "n2", "n3"} {
		r := coordinator.Report{Node: n, Incarnation: 5, Seq: uint64(w.at), Reachable: w.heard[n]}
		if n == "n1" {
			r.Shards = []coordinator.ShardReport{group}
		}
		in.Reports = append(in.Reports, r)
	}
	return w.c.Step(in)
}

// If the coordinator is the only node that cannot reach a node, that node is
// not considered dead. Instead, the metadata shard moves to a node that can
// reach it. A node that no other node can reach is considered dead.
func TestNodeUnreachableOnlyFromCoordinatorIsNotDead(t *testing.T) {
	all := []sharding.NodeID{"n1", "n2", "n3", "n4"}
	for _, tt := range []struct {
		name  string
		heard map[sharding.NodeID][]sharding.NodeID
		dead  bool
		to    sharding.NodeID
	}{
		{"all others hear it", map[sharding.NodeID][]sharding.NodeID{"n1": all[:3], "n2": all, "n3": all}, false, "n2"},
		{"one hears it", map[sharding.NodeID][]sharding.NodeID{"n1": all[:3], "n2": all[:3], "n3": all}, false, "n3"},
		{"one hears it, and not another one", map[sharding.NodeID][]sharding.NodeID{"n1": all[:3], "n2": all[:3], "n3": {"n1", "n3", "n4"}}, false, ""},
		{"nobody hears it", map[sharding.NodeID][]sharding.NodeID{"n1": all[:3], "n2": all[:3], "n3": all[:3]}, true, ""},
		{"nobody says whom it hears", nil, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newCutWorld(t)
			w.heard = tt.heard
			dead, to := false, map[sharding.NodeID]bool{}
			for range 30 {
				plan := w.step()
				dead = dead || slices.ContainsFunc(plan.Commands, func(c []byte) bool { return string(c) == string(meta.SetStatus("n4", 5, meta.StatusDown)) })
				for _, tr := range plan.Transfers {
					to[tr.To] = true
					if tr.Shard != sharding.MetaShard || tr.From != "n1" {
						t.Errorf("transfer %+v", tr)
					}
				}
			}
			want := map[sharding.NodeID]bool{}
			if tt.to != "" {
				want[tt.to] = true
			}
			if dead != tt.dead || fmt.Sprint(to) != fmt.Sprint(want) {
				t.Errorf("dead: %v, the metadata is handed over to %v; want %v, %v", dead, to, tt.dead, want)
			}
		})
	}
}

// A node that is unreachable for a moment causes no transfer.
func TestShortOutageKeepsTheCoordinator(t *testing.T) {
	w := newCutWorld(t)
	w.heard["n2"] = []sharding.NodeID{"n1", "n2", "n3", "n4"}
	for range 4 {
		if plan := w.step(); len(plan.Transfers) > 0 {
			t.Fatalf("after %d s: %+v", w.at-100, plan.Transfers)
		}
	}
}

// A leaving node stays a member as long as a shard needs its lost replica. If
// that shard cannot elect a leader, the pending operation says so.
func TestPendingLeaveReportsLostMajority(t *testing.T) {
	w := newCutWorld(t)
	apply(t, w.s, meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1", "n3", "n4"}}))
	for _, n := range []sharding.NodeID{"n3", "n4"} {
		apply(t, w.s, meta.Join(meta.Member{Node: n, Address: "a", Disk: "2", Incarnation: 6}))
	}
	apply(t, w.s, meta.SetStatus("n4", 6, meta.StatusLeaving))
	for _, p := range w.step().Pending {
		if p.Kind == coordinator.PendingLeave && p.Node == "n4" {
			if !strings.Contains(p.Reason, "shard 1 has lost a majority of its voters with the disks of n3, n4") {
				t.Errorf("%+v", p)
			}
			return
		}
	}
	t.Error("the order is not pending")
}
