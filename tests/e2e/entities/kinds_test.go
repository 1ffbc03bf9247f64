package entities

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// kept returns a module with one type of the given kind. Each version has a
// different digest.
func kept(name, kind, encoding, version string) guest.Module {
	frames := guest.Happened()
	if kind == "durable-state" {
		frames = abi.AppendFrame(abi.AppendFrame(nil, abi.OutState, []byte("state")), abi.OutReply, []byte("done"))
	}
	return guest.Module{
		Bad: name, Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))),
		Manifest: fmt.Sprintf(`{"abi":1,"name":"kept","version":%q,"entityTypes":[{"name":%q,"kind":%q,"encoding":%q}]}`, version, name, kind, encoding),
	}
}

// reason returns the machine-readable reason of an error.
func reason(err error) string {
	var e *client.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// TestKindOfStoredEntitiesCannotChange checks that a module that would
// interpret stored data in a different way than it was written cannot be
// activated by an upload, an activation or a rollback. If nothing is stored,
// the module can be activated.
func TestKindOfStoredEntitiesCannotChange(t *testing.T) {
	n := newNode(t)
	push := func(name, kind, encoding, version string) error {
		_, err := n.c.Upload(t.Context(), kept(name, kind, encoding, version).Build(), true)
		return err
	}
	send := func() uint64 {
		t.Helper()
		r, err := n.c.Send(t.Context(), client.Command{EntityType: "note", EntityID: "a", Name: "go"})
		if err != nil {
			t.Fatal(err)
		}
		return r.Sequence
	}
	if err := push("note", "durable-state", "bytes", "1"); err != nil {
		t.Fatal(err)
	}
	if err := push("note", "event-sourced", "bytes", "2"); err != nil {
		t.Fatalf("of a type without entities the kind may change: %v", err)
	}
	send()
	for i, m := range [][2]string{{"durable-state", "bytes"}, {"event-sourced", "json"}, {"transient", "bytes"}} {
		err := push("note", m[0], m[1], fmt.Sprint(i+3))
		if client.CodeOf(err) != connect.CodeFailedPrecondition || reason(err) != "KIND_CHANGED" || !strings.Contains(fmt.Sprint(err), "note") {
			t.Errorf("%s of %s: %v", m[0], m[1], err)
		}
	}
	if _, err := n.c.Rollback(t.Context(), "note"); reason(err) != "KIND_CHANGED" {
		t.Errorf("rollback to another kind: %v", err)
	}
	if sequence := send(); sequence != 2 {
		t.Errorf("the entity is at %d", sequence)
	}
	if err := push("note", "event-sourced", "bytes", "6"); err != nil {
		t.Errorf("the same kind: %v", err)
	}
	if _, err := n.api().DeleteEntity(t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "note", EntityId: "a"})); err != nil {
		t.Fatal(err)
	}
	if err := push("note", "durable-state", "json", "7"); err != nil {
		t.Errorf("of deleted entities alone: %v", err)
	}
	// A transient type stores nothing and may change its kind.
	for version, kind := range []string{"transient", "event-sourced"} {
		if err := push("room", kind, "bytes", fmt.Sprint(version)); err != nil {
			t.Errorf("of a transient type: %v", err)
		}
	}
}
