package entities

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// noter returns a module of the type note whose commands emit "happened".
// events is the list of event types in its manifest as JSON; empty omits the
// list.
func noter(version, events string) guest.Module {
	m := kept("note", "event-sourced", "bytes", version)
	if events != "" {
		m.Manifest = strings.TrimSuffix(m.Manifest, "}]}") + `,"events":` + events + "}]}"
	}
	return m
}

func (n *node) note(id string) error {
	_, err := n.c.Send(n.t.Context(), client.Command{EntityType: "note", EntityID: id, Name: "go"})
	return err
}

// push uploads and activates a module.
func (n *node) push(m guest.Module, force bool) (*modulev1.UploadModuleResponse, error) {
	return client.UploadModule(n.t.Context(), n.c, &modulev1.UploadModuleRequest{Wasm: m.Build(), Activate: true, Force: force})
}

// forcedBy returns the principal that forced the activation of the module that
// serves the notes.
func (n *node) forcedBy() string {
	n.t.Helper()
	m, err := n.c.ActiveModule(n.t.Context(), "note")
	if err != nil || len(m.GetModule().GetActivations()) != 1 {
		n.t.Fatal(m, err)
	}
	return m.GetModule().GetActivations()[0].GetForcedBy()
}

// TestStoredEventTypesMustBeListed checks that a module that does not list a
// stored event type is rejected on activation, not when the first caller needs
// it. Events of deleted entities do not count, and the stored types survive a
// restart.
func TestStoredEventTypesMustBeListed(t *testing.T) {
	n := newNode(t)
	if _, err := n.push(noter("1", `[{"type":"happened"}]`), false); err != nil {
		t.Fatal(err)
	}
	const many = 9
	for i := range many {
		if err := n.note(fmt.Sprint("e", i)); err != nil {
			t.Fatal(err)
		}
	}
	other := noter("2", `[{"type":"else"}]`)
	refused := func(want string) {
		t.Helper()
		_, err := n.push(other, false)
		if reason(err) != "INCOMPATIBLE_EVENTS" || client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(fmt.Sprintf("happened (%d)", many))
	if err := n.note("e0"); err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf("happened (%d)", many+1)) // the check includes later events
	n.stop()
	n.start()
	refused(fmt.Sprintf("happened (%d)", many+1))
	for _, fits := range []guest.Module{noter("3", ""), noter("4", `[{"type":"else"},{"type":"happened"}]`)} {
		if res, err := n.push(fits, false); err != nil || len(res.GetWarnings()) > 0 || n.forcedBy() != "" {
			t.Errorf("%s: %v, %v", fits.Manifest, res, err)
		}
	}
	res, err := n.push(other, true)
	if err != nil || len(res.GetWarnings()) != 1 || !strings.Contains(res.GetWarnings()[0], "happened") || n.forcedBy() != "anonymous" {
		t.Errorf("forced: %v by %q, %v", res, n.forcedBy(), err)
	}
	if _, err := n.push(noter("4", `[{"type":"else"},{"type":"happened"}]`), false); err != nil || n.forcedBy() != "" {
		t.Errorf("back: %q, %v", n.forcedBy(), err)
	}
	n.stop()
	n.start()
	for i := range many {
		if _, err := n.api().DeleteEntity(t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "note", EntityId: fmt.Sprint("e", i)})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.push(other, false); err != nil {
		t.Errorf("all that had the events are deleted: %v", err)
	}
}

// TestModuleThatFailsOnEntitiesIsRejected checks that a module is rejected if
// it fails to replay a few existing entities, and that the error names one of
// these entities and the event.
func TestModuleThatFailsOnEntitiesIsRejected(t *testing.T) {
	n := newNode(t)
	if _, err := n.push(noter("1", ""), false); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := n.note(fmt.Sprint("e", i)); err != nil {
			t.Fatal(err)
		}
	}
	broken := noter("2", "")
	broken.Apply = guest.Unreachable
	_, err := n.push(broken, false)
	if text := fmt.Sprint(err); reason(err) != "VERIFY_FAILED" || !strings.Contains(text, "of 5 sampled entities") || !strings.Contains(text, "at event 1 (happened)") || !strings.Contains(text, "unreachable") {
		t.Errorf("%v", err)
	}
	modules, err := n.c.Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	res, err := modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+n.n.Addr()).CheckCompatibility(t.Context(),
		connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "note", Digest: modules[0].GetDigest(), Sample: 100}))
	if err != nil || res.Msg.GetEntities() != 5 || len(res.Msg.GetFaults()) != 5 || res.Msg.GetUncheckedShards() != 0 {
		t.Errorf("asked: %v, %v", res, err)
	}
	if ids := []string{}; err == nil {
		for _, f := range res.Msg.GetFaults() {
			ids = append(ids, f.GetEntityId())
		}
		if slices.Sort(ids); !slices.Equal(ids, []string{"e0", "e1", "e2", "e3", "e4"}) {
			t.Errorf("it fails on %v", ids)
		}
	}
	if err := n.note("e1"); err != nil {
		t.Errorf("a refused module serves: %v", err)
	}
	if res, err := n.push(broken, true); err != nil || len(res.GetWarnings()) != 1 || n.forcedBy() != "anonymous" {
		t.Errorf("forced: %v, %v", res, err)
	}
	if err := n.note("e1"); client.CodeOf(err) != connect.CodeInternal {
		t.Errorf("a command of an entity that the module fails on: %v", err)
	}
}
