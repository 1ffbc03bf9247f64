package entities

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// drafts uploads a version of the type draft.
func (n *node) drafts(version string, activate bool) (digest string) {
	n.t.Helper()
	up, err := n.c.Upload(n.t.Context(), testkit.BuildGuest(n.t, "tests/e2e/entities/drafts/"+version), activate)
	if err != nil {
		n.t.Fatal(err)
	}
	return up.Digest
}

// draft returns the state of a draft according to the active module.
func (n *node) draft(id string) (string, error) {
	r, err := n.c.Query(n.t.Context(), client.Query{EntityType: "draft", EntityID: id, Name: "state"})
	return string(r.Data), err
}

func (n *node) draftIs(id, want string) {
	n.t.Helper()
	if got, err := n.draft(id); err != nil || got != want {
		n.t.Errorf("%s is %s, %v, want %s", id, got, err, want)
	}
}

// TestRollbackOfDurableStates checks that a module reads the states of the
// previous module. A rollback is rejected, and the error lists the entities, if
// the previous module cannot read states written since; older states do not
// matter. After a forced rollback, the listed entities fail, but lose no data.
func TestRollbackOfDurableStates(t *testing.T) {
	n := newNode(t)
	before := n.drafts("before", true)
	for i := range 4 {
		n.command("draft", fmt.Sprint("d", i), "write", `{"words":3}`)
	}
	now := n.drafts("now", true)
	n.command("draft", "d1", "write", `{"words":4}`)
	n.command("draft", "d2", "spell", "")
	for id, want := range map[string]string{"d0": `{"words":3}`, "d1": `{"words":7}`, "d2": `{"words":"many"}`} {
		n.draftIs(id, want)
	}
	back := func(force bool) error {
		_, err := client.RollbackModule(t.Context(), n.c, &modulev1.RollbackModuleRequest{EntityType: "draft", Force: force})
		return err
	}
	err := back(false)
	if reason(err) != "VERIFY_FAILED" || !strings.Contains(fmt.Sprint(err), "d2 at event 2") || n.serves("draft") != now {
		t.Fatalf("a state that the module before does not read: %v", err)
	}
	for _, id := range []string{"d0", "d1", "d3"} {
		if strings.Contains(fmt.Sprint(err), id+" at") {
			t.Errorf("%s is named: %v", id, err)
		}
	}
	n.command("draft", "d2", "write", `{"words":5}`)
	if err := back(false); err != nil || n.serves("draft") != before {
		t.Fatalf("states that the module before reads: %v", err)
	}
	n.command("draft", "d1", "write", `{"words":1}`)
	for id, want := range map[string]string{"d0": `{"words":3}`, "d1": `{"words":8}`, "d2": `{"words":5}`} {
		n.draftIs(id, want)
	}
	n.drafts("now", true)
	n.command("draft", "d3", "spell", "")
	if err := back(true); err != nil || n.serves("draft") != before {
		t.Fatalf("forced: %v", err)
	}
	if got, err := n.draft("d3"); err == nil {
		t.Errorf("what is not read is %s", got)
	}
	n.draftIs("d0", `{"words":3}`)
	n.stop()
	n.start()
	n.drafts("now", true)
	n.draftIs("d3", `{"words":"many"}`)
	n.draftIs("d1", `{"words":8}`)
}
