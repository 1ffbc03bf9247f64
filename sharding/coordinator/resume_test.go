package coordinator_test

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// A node that was declared down receives no shards before it has joined again,
// and a request to resume it is rejected with that reason.
func TestResumeOfDownNodeIsRejected(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: "n2"}); p.Err != nil {
		t.Fatalf("%+v", p)
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: "n2"}); p.Err == nil {
		t.Errorf("resumed: %+v", p)
	}
}

// A request that would remove the only storage node is rejected and changes
// nothing. If there are two storage nodes, a request for the first is accepted,
// and a request for the second is then rejected.
func TestLastStorageNodeCannotBeRemoved(t *testing.T) {
	for _, kind := range []coordinator.OperationKind{coordinator.OperationDown, coordinator.OperationLeave} {
		w := calmWorld(t, 1, 1)
		w.until(t, "whole", w.whole)
		if p := w.ask(t, coordinator.Operation{Kind: kind, Node: "n1"}); !errors.Is(p.Err, coordinator.ErrRefused) {
			t.Errorf("kind %d, a lone node: %+v", kind, p)
		}
		if m, _ := w.state.View().Member("n1"); m.Status != meta.StatusUp || m.Downed {
			t.Errorf("kind %d: after the refusal the node is %s, put down: %v", kind, m.Status, m.Downed)
		}
	}
	w := calmWorld(t, 2, 2)
	w.until(t, "whole", w.whole)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: "n2"}); p.Err != nil {
		t.Fatalf("one of two: %+v", p)
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: "n1"}); !errors.Is(p.Err, coordinator.ErrRefused) {
		t.Errorf("the other of two: %+v", p)
	}
}
