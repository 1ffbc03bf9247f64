package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// pendingFor returns the pending operation of a kind for a node.
func (w *world) pendingFor(kind coordinator.PendingKind, node int) (coordinator.Pending, bool) {
	i := slices.IndexFunc(w.pending, func(p coordinator.Pending) bool {
		return p.Kind == kind && (node < 0 && p.Node == "" || node >= 0 && p.Node == w.hosts[node].id)
	})
	if i < 0 {
		return coordinator.Pending{}, false
	}
	return w.pending[i], true
}

func (w *world) nothingPending() bool { return len(w.pending) == 0 }

// An operation that is currently impossible stays pending, with the reason,
// until it is possible.
func TestOperationsArePendingUntilDone(t *testing.T) {
	w := fiveVoters(t)
	w.until(t, "nothing is pending", w.nothingPending)
	w.kill(4)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: "n5"}); p.Err != nil {
		t.Fatal(p.Err)
	}
	needs := "replication 5 needs 5 storage nodes, only 4 are up"
	w.until(t, "the order and the policy wait for a node", func() bool {
		down, isDown := w.pendingFor(coordinator.PendingDown, 4)
		policy, isPolicy := w.pendingFor(coordinator.PendingReplication, -1)
		return isDown && isPolicy && strings.Contains(down.Reason, needs) && strings.Contains(policy.Reason, needs) && policy.Remaining >= shards
	})
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationLeave, Node: "n5"}); p.Err == nil || !strings.Contains(p.Err.Error(), needs) {
		t.Errorf("leave of a node that is down: %v", p.Err)
	}
	w.addHost()
	w.until(t, "another node took the place", func() bool { return w.nothingPending() && !w.isMember(4) && w.votersEverywhere(5) })
}

// A policy is pending while shards differ from it, in both directions.
func TestPolicyIsPendingUntilShardsMatchIt(t *testing.T) {
	w := fiveVoters(t)
	w.until(t, "nothing is pending", w.nothingPending)
	for _, n := range []int{3, 5} {
		w.replicate(n)
		w.until(t, "the change is pending", func() bool { _, is := w.pendingFor(coordinator.PendingReplication, -1); return is })
		w.until(t, fmt.Sprint("replication ", n), func() bool { return w.nothingPending() && w.votersEverywhere(n) })
	}
}

// A request to leave is pending until the node holds nothing, and a drain until
// the node leads nothing.
func TestLeaveAndDrainArePending(t *testing.T) {
	w := calmWorld(t, 4, 3)
	w.until(t, "whole", func() bool { return w.whole() && w.nothingPending() })
	w.hosts[3].leaving = true
	w.operations = append(w.operations, coordinator.Operation{ID: 1 << 40, Kind: coordinator.OperationLeave, Node: "n4"})
	w.until(t, "leaving", func() bool {
		p, is := w.pendingFor(coordinator.PendingLeave, 3)
		return is && p.Remaining > 0 && p.Reason != ""
	})
	w.until(t, "left", func() bool { return !w.isMember(3) && w.nothingPending() })

	w.kill(1) // only n1 and n3 are left to lead
	w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + 1, Kind: coordinator.OperationDrain, Node: "n1"})
	w.until(t, "drained", func() bool { return w.led("n1") == 0 })
	w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + 2, Kind: coordinator.OperationDrain, Node: "n3"})
	w.until(t, "nobody is left to lead what the last one leads", func() bool {
		p, is := w.pendingFor(coordinator.PendingDrain, 2)
		return is && strings.Contains(p.Reason, "no other voter of shard")
	})
}

// A node that the coordinator cannot reach may still be leading. Its drain is
// done only after this node, or another leader, has reported.
func TestDrainOfUnreachableNodeWaits(t *testing.T) {
	w := calmWorld(t, 5, 3)
	w.until(t, "whole", w.whole)
	at := slices.IndexFunc(w.hosts, func(h *host) bool { return h != w.at && w.led(h.id) > 0 })
	w.hosts[at].apart = true
	for range 14 { // all reports become outdated
		w.tick()
	}
	led := w.led(w.hosts[at].id)
	if led == 0 {
		t.Fatal("it leads nothing")
	}
	const id = 1 << 40
	w.operations = append(w.operations, coordinator.Operation{ID: id, Kind: coordinator.OperationDrain, Node: w.hosts[at].id})
	w.until(t, "the order stands", func() bool { return w.done[id].Durable })
	for range 4 {
		w.tick()
	}
	p, is := w.pendingFor(coordinator.PendingDrain, at)
	if w.done[id].Done || !is || p.Remaining != led || !strings.Contains(p.Reason, "cannot reach node "+string(w.hosts[at].id)) {
		t.Errorf("it leads %d shards: %+v, pending %v %+v", led, w.done[id], is, p)
	}
	w.hosts[at].apart = false
	w.until(t, "drained", func() bool { return w.done[id].Done && w.led(w.hosts[at].id) == 0 })

	// A dead node counts as leading nothing as soon as other nodes lead its
	// shards.
	w = calmWorld(t, 5, 3)
	w.until(t, "whole", w.whole)
	at = slices.IndexFunc(w.hosts, func(h *host) bool { return h != w.at && w.led(h.id) > 0 })
	w.kill(at)
	w.operations = append(w.operations, coordinator.Operation{ID: id, Kind: coordinator.OperationDrain, Node: w.hosts[at].id})
	w.until(t, "drained", func() bool { return w.done[id].Done })
}

// Rebalancing waits while a node is unreachable, and an operation to rebalance
// does not end as if the cluster were balanced.
func TestRebalanceWaitsForUnreachableNode(t *testing.T) {
	w := calmWorld(t, 4, 3)
	w.until(t, "whole", w.whole)
	const id = 1 << 40
	w.hosts[3].apart = true
	for range 14 {
		w.tick()
	}
	w.operations = append(w.operations, coordinator.Operation{ID: id, Kind: coordinator.OperationRebalance})
	w.until(t, "an answer", func() bool { return w.done[id].Done })
	if err := w.done[id].Err; err == nil || !strings.Contains(err.Error(), "no heartbeats from node n4") {
		t.Errorf("asked while n4 is not heard: %v", err)
	}

	// A rebalance that is in progress waits, too.
	w = calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	w.propose(meta.PutPolicy(meta.Policy{Replication: 3, MinMembers: 3}))
	w.addHost()
	up := func() bool { m, _ := w.state.View().Member("n4"); return m.Status == meta.StatusUp }
	w.until(t, "a fourth node without replicas", func() bool { return up() && w.nothingPending() })
	w.operations = append(w.operations, coordinator.Operation{ID: id, Kind: coordinator.OperationRebalance})
	w.until(t, "replicas are being copied", func() bool { _, is := w.pendingFor(coordinator.PendingRebalance, -1); return is })
	w.hosts[3].apart = true
	for range 14 {
		w.tick()
	}
	if _, is := w.pendingFor(coordinator.PendingRebalance, -1); w.done[id].Done || !is {
		t.Errorf("n4 is not heard: %+v, pending %v", w.done[id], is)
	}
	w.hosts[3].apart = false
	w.until(t, "even", func() bool { return w.done[id].Done })
	if got := len(w.state.View().HostedBy("n4")); got != 4 {
		t.Errorf("n4 holds %d replicas", got)
	}
}

// A move to an unreachable node stays pending, and the reason says that the
// node is unreachable.
func TestMoveToUnreachableNodeIsPending(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	at := slices.IndexFunc(w.hosts, func(h *host) bool { return h != w.at })
	w.hosts[at].apart = true
	shard := sharding.ShardID(1)
	for w.leaderOf(shard) == w.hosts[at].id {
		shard++
	}
	w.operations = append(w.operations, coordinator.Operation{ID: 1 << 40, Kind: coordinator.OperationMove, Shard: shard, Node: w.hosts[at].id})
	for range 14 {
		w.tick()
	}
	if p, is := w.pendingFor(coordinator.PendingMove, at); !is || !strings.Contains(p.Reason, "cannot reach node "+string(w.hosts[at].id)) {
		t.Errorf("%v %+v", is, p)
	}
}

// A request to leave stays valid while its node is down, and may be repeated.
func TestLeaveSurvivesNodeDown(t *testing.T) {
	w := calmWorld(t, 4, 3)
	w.until(t, "whole", w.whole)
	var speakers []meta.Speaker
	for _, h := range w.hosts {
		speakers = append(speakers, meta.Speaker{Node: h.id, Incarnation: h.incarnation, Speaks: sharding.VersionRange{Min: 1, Max: sharding.VersionLeaving}})
	}
	w.propose(meta.RaiseClusterVersion(sharding.VersionLeaving, speakers...))
	w.until(t, "raised", func() bool { return w.state.ClusterVersion() == sharding.VersionLeaving })
	const drain, first, again = 1 << 40, 1<<40 + 1, 1<<40 + 2
	w.operations = append(w.operations, coordinator.Operation{ID: drain, Kind: coordinator.OperationDrain, Node: w.hosts[3].id}) // nothing replaces n2
	w.until(t, "drained", func() bool { return w.done[drain].Done })
	at := slices.IndexFunc(w.hosts, func(h *host) bool { return h != w.at && h != w.hosts[3] && len(w.state.View().HostedBy(h.id)) > 1 })
	w.operations = append(w.operations, coordinator.Operation{ID: first, Kind: coordinator.OperationLeave, Node: w.hosts[at].id})
	w.until(t, "the order stands", func() bool { return w.done[first].Durable })
	w.kill(at)
	w.until(t, "down", func() bool {
		m, _ := w.state.View().Member(w.hosts[at].id)
		return m.Status == meta.StatusDown
	})
	w.operations = append(w.operations, coordinator.Operation{ID: again, Kind: coordinator.OperationLeave, Node: w.hosts[at].id})
	w.until(t, "the order stands again", func() bool { return w.done[again].Durable })
	if _, is := w.pendingFor(coordinator.PendingLeave, at); !is || w.done[again].Err != nil {
		t.Errorf("%+v, pending %+v", w.done[again], w.pending)
	}
	refused := w.stats["refused"]
	for range 40 {
		w.tick()
	}
	if w.stats["refused"] != refused {
		t.Error("the metadata refuses what is asked for again and again")
	}
}

// If a leaving node waits for a drained node that could take its replicas, the
// pending operation says so. It does not ask for more nodes, which only a
// higher replication would need.
func TestPendingLeaveNamesDrainedNode(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", func() bool { return w.whole() && w.nothingPending() })
	w.propose(meta.PutPolicy(meta.Policy{Replication: 3, MinMembers: 3})) // the new node gets nothing
	w.addHost()
	w.until(t, "n4 is up", func() bool { m, _ := w.state.View().Member("n4"); return m.Status == meta.StatusUp })
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n4"}); p.Err != nil {
		t.Fatal(p.Err)
	}
	w.propose(meta.PutPolicy(meta.Policy{Replication: 5, MinMembers: 3}))
	w.hosts[2].leaving = true
	w.operations = append(w.operations, coordinator.Operation{ID: 1 << 40, Kind: coordinator.OperationLeave, Node: "n3"})
	w.until(t, "it waits for n4", func() bool {
		p, is := w.pendingFor(coordinator.PendingLeave, 2)
		return is && strings.Contains(p.Reason, "node n4 could take a replica of shard") && strings.Contains(p.Reason, "it is drained: run 'hostd node resume n4'")
	})
	if p, is := w.pendingFor(coordinator.PendingReplication, -1); !is || !strings.Contains(p.Reason, "replication 5 needs 5 storage nodes") {
		t.Errorf("replication: %+v", p)
	}
	w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + 1, Kind: coordinator.OperationResume, Node: "n4"})
	w.until(t, "left", func() bool { return !w.isMember(2) })
}
