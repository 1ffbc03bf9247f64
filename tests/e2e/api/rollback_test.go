package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// release returns a module whose type "shop" replies with the text.
func release(text string) guest.Module {
	frames := abi.AppendFrame(nil, abi.OutReply, []byte(text))
	return guest.Module{Bad: "shop", Handle: guest.Span(guest.FramesAt, uint32(len(frames))), Frames: frames}
}

// TestRollback checks that a rollback activates the previous module, one step
// at a time, that a repeated request takes no second step, and that a step is
// not taken if the active module is not the expected module.
func TestRollback(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	replies := func(want string) {
		t.Helper()
		if got := s.send(t, command("shop", "a", "go", "")); string(got.GetData()) != want {
			t.Errorf("the reply is %q, want %q", got.GetData(), want)
		}
	}
	revision := func() uint64 {
		t.Helper()
		res, err := s.call(t.Context(), &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: "shop"}})
		if err != nil {
			t.Fatal(err)
		}
		return res.(*modulev1.GetModuleResponse).GetModule().GetActivations()[0].GetRevision()
	}
	refused := func(revision uint64) {
		t.Helper()
		_, err := s.call(t.Context(), &modulev1.RollbackModuleRequest{EntityType: "shop", Revision: revision})
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("rollback of revision %d: %v", revision, err)
		}
	}
	s.upload(t, release("one"))
	refused(0)
	for _, next := range []string{"two", "three"} {
		s.upload(t, release(next))
		replies(next)
	}
	three := revision()
	for range 2 { // the second is a retry of a caller that got no answer
		res, err := s.call(t.Context(), &modulev1.RollbackModuleRequest{EntityType: "shop", Revision: three})
		if err != nil || res.(*modulev1.RollbackModuleResponse).GetRevision() != revision() {
			t.Fatalf("rollback: %v, %v", res, err)
		}
		replies("two")
	}
	out, code := s.node.Run("module", "rollback", "shop", "--addr", s.node.API())
	if code != 0 || !strings.Contains(out, "shop is served by") {
		t.Errorf("the command ends with %d: %s", code, out)
	}
	replies("one")
	if out, code := s.node.Run("module", "rollback", "shop", "--addr", s.node.API()); code == 0 || !strings.Contains(out, "there is no previous module of shop") {
		t.Errorf("a rollback from the first ends with %d: %s", code, out)
	}
	text, code := s.node.Run("module", "history", "shop", "-o", "json", "--addr", s.node.API())
	var history struct {
		EntityType string
		Changes    []struct {
			Kind, Digest, ChangedBy      string
			Revision, RolledBackRevision uint64
			Forced                       bool
		}
	}
	if err := json.Unmarshal([]byte(text), &history); err != nil || code != 0 {
		t.Fatalf("the history ends with %d: %v: %s", code, err, text)
	}
	var kinds []string
	for i, c := range history.Changes {
		kinds = append(kinds, c.Kind)
		if c.ChangedBy != "anonymous" || c.Forced || c.Revision == 0 || i > 0 && c.Revision >= history.Changes[i-1].Revision {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	if want := []string{"rollback", "rollback", "activate", "activate", "activate"}; history.EntityType != "shop" || !slices.Equal(kinds, want) {
		t.Fatalf("%s has been changed by %v", history.EntityType, kinds)
	}
	if c := history.Changes; c[1].RolledBackRevision != three || c[1].Digest != c[3].Digest || c[0].RolledBackRevision != c[1].Revision || c[0].Digest != c[4].Digest {
		t.Errorf("the changes are %+v", c)
	}
	if out, code := s.node.Run("module", "history", "shop", "--addr", s.node.API()); code != 0 || strings.Count(out, "anonymous") != 5 || !strings.Contains(out, fmt.Sprint("rollback of ", three)) {
		t.Errorf("the history as a table ends with %d: %s", code, out)
	}
	if out, code := s.node.Run("module", "history", "nothing", "--addr", s.node.API()); code == 0 || !strings.Contains(out, "not_found") {
		t.Errorf("the history of no type ends with %d: %s", code, out)
	}
	s.upload(t, release("four"))
	refused(three)
	replies("four")
	s.node.Kill()
	s.node.Start()
	replies("four")
}
