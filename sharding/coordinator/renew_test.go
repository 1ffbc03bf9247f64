package coordinator_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// A node with damaged data may discard it if the node leads nothing and all
// other nodes are healthy, but not while another node is away.
func TestOneNodeIsRenewedAtATime(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationRenew, Node: "n2"}); p.Err == nil {
		t.Error("a node that leads shards was renewed")
	}
	w.hosts[1].draining = true
	w.until(t, "n2 leads nothing", func() bool {
		for s := range sharding.ShardID(shards + 1) {
			if l := w.groups[s].lead(); l == nil || l.node == w.hosts[1] {
				return false
			}
		}
		return true
	})
	w.until(t, "n2, which is whole and reports, is refused for that", func() bool {
		p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationRenew, Node: "n2"})
		if p.Err == nil {
			t.Fatal("a node that is whole was renewed")
		}
		return strings.Contains(p.Err.Error(), "no damage")
	})
	var p coordinator.Progress
	w.until(t, "n2 is renewed", func() bool {
		for s := range sharding.ShardID(shards + 1) {
			if r := w.groups[s].on(w.hosts[1]); r != nil {
				r.stopped = sharding.StopDamaged
			}
		}
		p = w.ask(t, coordinator.Operation{Kind: coordinator.OperationRenew, Node: "n2"})
		return p.Err == nil
	})
	if m, _ := w.state.View().Member("n2"); m.Status != meta.StatusDown || !m.Downed {
		t.Errorf("n2 is %+v", m)
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationRenew, Node: "n2"}); p.Err != nil {
		t.Errorf("asked again: %+v", p)
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationRenew, Node: "n3"}); p.Err == nil || !strings.Contains(p.Err.Error(), "node n2 is down") {
		t.Errorf("a second one beside it: %v", p.Err)
	}
}
