package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// troubleOf returns the node's impairment in the last plan.
func (w *world) troubleOf(node sharding.NodeID) coordinator.Impairment {
	for _, t := range w.troubles {
		if t.Node == node {
			return t
		}
	}
	return coordinator.Impairment{}
}

// rebuilt waits until shard 1 has a working voter on the node with a new id,
// and reports whether that happens in time.
func (w *world) rebuilt(t *testing.T, node sharding.NodeID, old sharding.ReplicaID, within time.Duration) bool {
	t.Helper()
	for began := w.now; w.now.Sub(began) < within; w.tick() {
		if w.fault != "" {
			t.Fatal(w.fault)
		}
		p, _ := w.state.View().Placement(1)
		if r, on := p.ReplicaOn(node); on && r.ID != old && r.State == meta.ReplicaVoter {
			return true
		}
	}
	return false
}

// After the second damage, a node leads nothing for an hour and gets its next
// replica later. After the third damage, the node gets a replica only when an
// operator resumes the node. Replicas that are damaged at the same time count
// once.
func TestRepeatedDamageStopsPlacementOnNode(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	const node = "n2"
	damage := func() sharding.ReplicaID {
		for s := sharding.ShardID(2); s <= shards; s++ {
			w.stopOn(s, node, sharding.StopDamaged)
		}
		return w.stopOn(1, node, sharding.StopDamaged).id
	}
	settled := func(what string) {
		t.Helper()
		w.until(t, what, func() bool {
			for s := sharding.ShardID(1); s <= shards; s++ {
				p, _ := w.state.View().Placement(s)
				if r, on := p.ReplicaOn(node); !on || r.State != meta.ReplicaVoter || w.groups[s].on(w.host(node)) == nil {
					return false
				}
			}
			return true
		})
	}
	old := damage()
	if !w.rebuilt(t, node, old, time.Minute) {
		t.Fatal("the first damaged replica is not replaced")
	}
	settled("all are replaced")
	w.until(t, "it leads again", func() bool { return w.led(node) > 0 })

	old = damage()
	if w.rebuilt(t, node, old, 9*time.Minute) {
		t.Error("the second one is replaced at once")
	}
	if !w.rebuilt(t, node, old, 5*time.Minute) {
		t.Fatal("the second one is never replaced")
	}
	settled("all are replaced")
	second := w.troubleOf(node)
	if second.Damages != 2 || second.Until.Sub(w.now) < 40*time.Minute {
		t.Errorf("after the second damage the plan says %+v", w.troubles)
	}
	for w.now.Before(second.Until.Add(-time.Minute)) {
		if w.tick(); w.led(node) > 0 {
			t.Fatal("it leads before the hour is over")
		}
	}
	w.until(t, "it leads again", func() bool { return w.led(node) > 0 })

	old = damage()
	if w.rebuilt(t, node, old, 3*time.Hour) {
		t.Error("the third one is replaced by itself")
	}
	if got := w.troubleOf(node); got.Damages != coordinator.MaxDamages || !got.Until.IsZero() {
		t.Errorf("after the third damage the plan says %+v", w.troubles)
	}
	if p, is := w.pendingFor(coordinator.PendingReplication, -1); !is || !strings.Contains(p.Reason, "replicas on node n2 were repeatedly damaged") {
		t.Errorf("pending: %+v", w.pending)
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: node}); p.Err == nil {
		t.Error("a shard is moved to it")
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: node}); p.Err != nil {
		t.Fatal(p.Err)
	}
	if !w.rebuilt(t, node, old, time.Minute) {
		t.Error("not replaced after the node was resumed")
	}
}
