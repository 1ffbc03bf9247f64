package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding/coordinator"
)

// pendingFor is the pending order of a kind about a node.
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

// An order that the cluster cannot carry out as it is stays pending with its
// reason until it can.
func TestOrdersArePendingUntilTheyAreDone(t *testing.T) {
	w := fiveVoters(t)
	w.until(t, "nothing is pending", w.nothingPending)
	w.kill(4)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: "n5"}); p.Err != nil {
		t.Fatal(p.Err)
	}
	needs := "replication 5 needs 5 storage nodes that are up, there are 4"
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

// A policy is pending for as long as shards differ from it, in both directions.
func TestPolicyIsPendingUntilShardsMatchIt(t *testing.T) {
	w := fiveVoters(t)
	w.until(t, "nothing is pending", w.nothingPending)
	for _, n := range []int{3, 5} {
		w.replicate(n)
		w.until(t, "the change is pending", func() bool { _, is := w.pendingFor(coordinator.PendingReplication, -1); return is })
		w.until(t, fmt.Sprint("replication ", n), func() bool { return w.nothingPending() && w.votersEverywhere(n) })
	}
}

// A node that leaves and one that is drained are pending until they hold, or
// lead, nothing.
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

	w.kill(1) // nobody but n1 and n3 is left to lead
	w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + 1, Kind: coordinator.OperationDrain, Node: "n1"})
	w.until(t, "drained", func() bool { return w.led("n1") == 0 })
	w.operations = append(w.operations, coordinator.Operation{ID: 1<<40 + 2, Kind: coordinator.OperationDrain, Node: "n3"})
	w.until(t, "nobody is left to lead what the last one leads", func() bool {
		p, is := w.pendingFor(coordinator.PendingDrain, 2)
		return is && strings.Contains(p.Reason, "no other voter of shard")
	})
}
