package entities

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// snapshotLoads returns the number of entities that were loaded from snapshots.
func (n *node) snapshotLoads() (loads int) {
	n.t.Helper()
	for line := range strings.Lines(n.metrics()) {
		if _, err := fmt.Sscanf(line, "hostd_snapshot_loads_total %d", &loads); err == nil {
			return loads
		}
	}
	n.t.Fatal("there is no such metric")
	return 0
}

// TestSnapshotsOfPreviousModuleNeedVerification checks that a module that declares the state
// version of the previous module loads its snapshots, but only after a
// verification of all entities found that it computes the same states. A
// verification finds a module that computes different states from a snapshot.
func TestSnapshotsOfPreviousModuleNeedVerification(t *testing.T) {
	const entities = 4
	n := newNode(t)
	before, fixed, forgetful := n.orders("before", true), n.orders("fixed", false), n.orders("forgetful", false)
	add := func() {
		for i := range entities {
			n.place(fmt.Sprint("o", i), `{"sku":"tea","count":1,"cents":7}`)
		}
	}
	// Write until each entity has a snapshot and an event after it.
	var found *modulev1.VerifyModuleResponse
	for deadline := time.Now().Add(testkit.Patience); found.GetDifferingEntities() < entities; {
		if time.Now().After(deadline) {
			t.Fatalf("a module that makes something else of snapshots: %v", found)
		}
		add()
		found = n.verify(forgetful)
	}
	for _, d := range found.GetDifferences() {
		if d.GetFault() || !strings.HasPrefix(d.GetDescription(), "from the snapshot at event ") {
			t.Errorf("a difference is %v", d)
		}
	}
	// count queries every entity, so that the active module loads each of them,
	// and returns how many began with a snapshot.
	count := func() int {
		t.Helper()
		was := n.snapshotLoads()
		for i := range entities {
			r, err := n.c.Query(t.Context(), client.Query{EntityType: "order", EntityID: fmt.Sprint("o", i), Name: "state"})
			if err != nil || strings.Count(string(r.Data), "tea") == 0 {
				t.Fatal(r, err)
			}
		}
		return n.snapshotLoads() - was
	}
	if err := n.activate(fixed); err != nil {
		t.Fatal(err)
	}
	if loads := count(); loads != 0 {
		t.Errorf("%d entities were loaded from snapshots of a module that nobody has compared with", loads)
	}
	if err := n.activate(before); err != nil {
		t.Fatal(err)
	}
	count()
	if m := n.verify(fixed); !m.GetStored() || m.GetDifferingEntities()+m.GetFaultyEntities() != 0 {
		t.Fatalf("a module that makes the same of snapshots: %v", m)
	}
	if err := n.activate(fixed); err != nil {
		t.Fatal(err)
	}
	if loads := count(); loads != entities {
		t.Errorf("%d of %d entities were loaded from snapshots of the module before", loads, entities)
	}
	n.stop()
	n.start()
	if loads := count(); loads != entities {
		t.Errorf("after a start %d of %d", loads, entities)
	}
	add()
	if m := n.verify(before); !m.GetStored() || m.GetDifferingEntities()+m.GetFaultyEntities() != 0 {
		t.Errorf("the histories afterwards: %v", m)
	}
}
