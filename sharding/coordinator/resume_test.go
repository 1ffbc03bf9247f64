package coordinator_test

import (
	"testing"

	"github.com/hostd/hostd/sharding/coordinator"
)

// TestDownNodesAreNotResumed: a node that was put down takes on no shards again
// before it joins anew, and whoever resumes it is told so.
func TestDownNodesAreNotResumed(t *testing.T) {
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationDown, Node: "n2"}); p.Err != nil {
		t.Fatalf("%+v", p)
	}
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: "n2"}); p.Err == nil {
		t.Errorf("resumed: %+v", p)
	}
}
