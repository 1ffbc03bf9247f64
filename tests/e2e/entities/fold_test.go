package entities

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestOldStatesAreReplayedByTheirModule checks the states of an entity after a
// module that evolves events differently takes over its type. The new module
// computes the current state from all events. The old module computes earlier
// states, from a snapshot or from the first event, also after a stop and after
// the old module was activated again.
func TestOldStatesAreReplayedByTheirModule(t *testing.T) {
	n := newNode(t)
	n.fill("trail", 0, 60)
	live := func() int64 {
		t.Helper()
		r, err := n.c.Query(t.Context(), client.Query{EntityType: "trail", EntityID: "x", Name: "state"})
		var s state
		if err == nil {
			err = json.Unmarshal(r.Data, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.Total
	}
	first := n.active("trail")
	if _, err := n.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/later"), true); err != nil {
		t.Fatal(err)
	}
	if total := live(); total != 120 {
		t.Errorf("the new module makes %d of the events", total)
	}
	if s, by := n.stateNow("trail"); s.Total != 120 || by != n.active("trail") {
		t.Errorf("the state that the new module sees: %d, by %s", s.Total, by)
	}
	n.fill("trail", 60, 5)
	for range 2 {
		for at, want := range map[uint64]int64{0: 0, 1: 1, 40: 40, 49: 49, 50: 50, 55: 55, 60: 60, 61: 122, 65: 130} {
			if s, err := n.fold("trail", at); err != nil || s.Total != want {
				t.Errorf("the state at %d: %d, want %d: %v", at, s.Total, want, err)
			}
		}
		n.stop()
		n.start()
	}
	if _, err := n.c.Activate(t.Context(), "trail", first); err != nil {
		t.Fatal(err)
	}
	if total := live(); total != 65 {
		t.Errorf("the old module makes %d of the events", total)
	}
	if s, err := n.fold("trail", 61); err != nil || s.Total != 122 {
		t.Errorf("the state at 61: %d: %v", s.Total, err)
	}
	if s, by := n.stateNow("trail"); s.Total != 65 || by != first {
		t.Errorf("the state that the old module sees: %d, by %s", s.Total, by)
	}
}

// TestFailedReplayIsReported checks that a request for a state that the
// module fails to compute returns the failure.
func TestFailedReplayIsReported(t *testing.T) {
	n := newNode(t)
	n.pushed(noter("1", bothEvents))
	n.notes("a")
	failing := noter("2", bothEvents)
	failing.Apply = guest.Unreachable
	if _, err := n.push(failing, true); err != nil {
		t.Fatal(err)
	}
	_, err := n.api().GetState(t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "note", EntityId: "a"}))
	if connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(fmt.Sprint(err), "guest fault: hostd_apply: ") {
		t.Errorf("the state: %v", err)
	}
}

// TestIdleTimeOfManifestApplies checks that an entity leaves memory after the idle
// time that the active module declares for its type.
func TestIdleTimeOfManifestApplies(t *testing.T) {
	n := newNode(t)
	n.fill("trail", 0, 3)
	resident := func() bool {
		t.Helper()
		e, err := n.c.Entity(t.Context(), "trail", "x")
		if err != nil {
			t.Fatal(err)
		}
		return e.GetResident()
	}
	if !resident() {
		t.Fatal("of a type that says nothing an entity leaves at once")
	}
	if _, err := n.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/later"), true); err != nil {
		t.Fatal(err)
	}
	n.fill("trail", 3, 3)
	for end := time.Now().Add(testkit.Patience); resident(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never leaves")
		}
	}
	if s, err := n.fold("trail", 6); err != nil || s.Total != 12 {
		t.Errorf("its state: %+v %v", s, err)
	}
}

// TestStatesOfCompactedHistories checks that states of an entity whose first
// events were truncated are replayed from its oldest snapshot, also by a later
// module, and that the error for an earlier state says at which sequence states
// begin.
func TestStatesOfCompactedHistories(t *testing.T) {
	n := newNode(t)
	commands := uint64(10_100)
	n.fill("trail", 0, int(commands))
	commands += uint64(n.fillUntilCut("trail", int(commands)))
	begins := n.begins("trail")
	var oldest uint64
	_, err := n.fold("trail", begins)
	if _, after, found := strings.Cut(fmt.Sprint(err), "from sequence "); found {
		fmt.Sscan(after, &oldest)
	}
	if connect.CodeOf(err) != connect.CodeOutOfRange || oldest <= begins || oldest > commands {
		t.Fatalf("the state at %d: %v", begins, err)
	}
	if _, err := n.fold("trail", oldest-1); connect.CodeOf(err) != connect.CodeOutOfRange {
		t.Errorf("the state at %d: %v", oldest-1, err)
	}
	// The module computes a different state from the snapshots, so it has to be
	// forced.
	later := &modulev1.UploadModuleRequest{Wasm: testkit.BuildGuest(t, "tests/e2e/entities/later"), Activate: true, Force: true}
	if _, err := client.UploadModule(t.Context(), n.c, later); err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{oldest, oldest + 1, commands} {
		if s, err := n.fold("trail", at); err != nil || s.Total != int64(at) {
			t.Errorf("the state at %d: %d: %v", at, s.Total, err)
		}
	}
}

// fold returns the state of entity x of a type as of a sequence.
func (n *node) fold(entityType string, at uint64) (s state, err error) {
	n.t.Helper()
	res, err := n.api().GetState(n.t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: entityType, EntityId: "x", AtSequence: &at}))
	if err != nil {
		return s, err
	}
	text, err := res.Msg.GetJson().MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// stateNow returns the state of entity x of a type according to the active
// module, and the digest of that module in the response.
func (n *node) stateNow(entityType string) (s state, digest string) {
	n.t.Helper()
	res, err := n.api().GetState(n.t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: entityType, EntityId: "x"}))
	if err != nil {
		n.t.Fatal(err)
	}
	text, err := res.Msg.GetJson().MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return s, res.Msg.GetModuleDigest()
}

// active returns the digest of a type's active module.
func (n *node) active(entityType string) string {
	n.t.Helper()
	e, err := n.c.Entity(n.t.Context(), entityType, "x")
	if err != nil {
		n.t.Fatal(err)
	}
	return e.GetModuleDigest()
}
