package entities

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// TestStatesAreMigrated checks that a module reads durable states in the
// previous module's format until a command writes them again. If a module does
// not read a stored state version, its activation, or a rollback to it, is
// rejected, and the error names the version. If the module is forced, it does
// not misread these states.
func TestStatesAreMigrated(t *testing.T) {
	n := newNode(t)
	before := n.drafts("before", true)
	for i := range 3 {
		n.command("draft", fmt.Sprint("d", i), "write", `{"words":3}`)
	}
	later := n.drafts("later", false)
	if got := n.verifyDrafts(later); got.GetEntities() != 3 || got.GetFaultyEntities() != 0 || got.GetDifferingEntities() != 3 {
		t.Errorf("states of another form: %v", got)
	} else if d := got.GetDifferences()[0]; !strings.Contains(d.GetDescription(), `{"english":3,"french":0}`) {
		t.Errorf("a difference is %v", d)
	}
	activate := func(digest string, force bool) error {
		_, err := client.ActivateModule(t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "draft", Digest: digest, Force: force})
		return err
	}
	if err := activate(later, false); err != nil {
		t.Fatal(err)
	}
	n.draftIs("d0", `{"english":3,"french":0}`)
	back := func() error {
		_, err := client.RollbackModule(t.Context(), n.c, &modulev1.RollbackModuleRequest{EntityType: "draft"})
		return err
	}
	n.command("draft", "d1", "write", `{"words":2,"french":true}`)
	n.draftIs("d1", `{"english":3,"french":2}`)
	n.stop()
	n.start()
	for id, want := range map[string]string{"d0": `{"english":3,"french":0}`, "d1": `{"english":3,"french":2}`} {
		n.draftIs(id, want)
	}
	var types []string
	for e, err := range n.c.ReadEvents(t.Context(), client.EventRange{EntityType: "draft", EntityID: "d1"}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	if want := []string{"state", "state.v2"}; !slices.Equal(types, want) {
		t.Errorf("the stored states of d1 are %q, want %q", types, want)
	}
	if err := back(); reason(err) != "VERIFY_FAILED" || !strings.Contains(fmt.Sprint(err), "d1 at event 2") || strings.Contains(fmt.Sprint(err), "d0 at") {
		t.Errorf("a rollback over newer states: %v", err)
	}
	if err := activate(before, false); reason(err) != "INCOMPATIBLE_EVENTS" || !strings.Contains(fmt.Sprint(err), "state.v2 (1)") {
		t.Errorf("the module before, over newer states: %v", err)
	}
	if err := activate(before, true); err != nil {
		t.Fatal(err)
	}
	n.draftIs("d0", `{"words":3}`)
	if got, err := n.draft("d1"); err == nil {
		t.Errorf("forced, a state that is not read is %s", got)
	}
	if err := activate(later, false); err != nil {
		t.Fatal(err)
	}
	n.draftIs("d1", `{"english":3,"french":2}`)
}

// verifyDrafts verifies a module on all drafts. It returns the last report with
// the differences of all reports.
func (n *node) verifyDrafts(digest string) *modulev1.VerifyModuleResponse {
	n.t.Helper()
	stream, err := n.modules().VerifyModule(n.t.Context(), connect.NewRequest(&modulev1.VerifyModuleRequest{EntityType: "draft", Digest: digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}))
	if err != nil {
		n.t.Fatal(err)
	}
	var differences []*modulev1.VerifyModuleResponse_Difference
	var last *modulev1.VerifyModuleResponse
	for stream.Receive() {
		last = stream.Msg()
		differences = append(differences, last.GetDifferences()...)
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil || last == nil {
		n.t.Fatal(last, err)
	}
	last.Differences = differences
	return last
}
