package entities

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// emits makes a module's commands emit an event of the given type instead of
// "happened".
func emits(m guest.Module, eventType string) guest.Module {
	event := append(binary.LittleEndian.AppendUint16(nil, uint16(len(eventType))), eventType...)
	m.Frames = abi.AppendFrame(abi.AppendFrame(nil, abi.OutEvent, append(event, "it"...)), abi.OutReply, []byte("done"))
	m.Handle = guest.Span(guest.FramesAt, uint32(len(m.Frames)))
	return m
}

// pushed uploads and activates a module that passes the compatibility check.
func (n *node) pushed(m guest.Module) (digest string) {
	n.t.Helper()
	res, err := n.push(m, false)
	if err != nil {
		n.t.Fatal(err)
	}
	return res.GetDigest()
}

// serves returns the digest of a type's active module.
func (n *node) serves(entityType string) string {
	n.t.Helper()
	m, err := n.c.ActiveModule(n.t.Context(), entityType)
	if err != nil {
		n.t.Fatal(err)
	}
	return m.GetModule().GetDigest()
}

func (n *node) notes(ids ...string) {
	n.t.Helper()
	for _, id := range ids {
		if err := n.note(id); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) rollback(force bool) (*modulev1.RollbackModuleResponse, error) {
	return client.RollbackModule(n.t.Context(), n.c, &modulev1.RollbackModuleRequest{EntityType: "note", Force: force})
}

// unfit checks that a rollback changes nothing, and that its error names
// exactly the given entities.
func (n *node) unfit(what string, ids ...string) {
	n.t.Helper()
	before := n.serves("note")
	_, err := n.rollback(false)
	if reason(err) != "VERIFY_FAILED" || client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(fmt.Sprint(err), what) {
		n.t.Fatalf("%v, want %s", err, what)
	}
	for i := range 6 {
		id := fmt.Sprint("e", i)
		if named := strings.Contains(fmt.Sprint(err), id+" at event"); named != slices.Contains(ids, id) {
			n.t.Errorf("%s is named: %v: %v", id, named, err)
		}
	}
	if now := n.serves("note"); now != before {
		n.t.Errorf("it went back all the same, to %s", now)
	}
}

// touched returns the number of notes that a rollback to module by would have
// to check: those written by modules other than since. It fails the test if
// module by cannot read one of these notes.
func (n *node) touched(by, since string) uint64 {
	n.t.Helper()
	res, err := modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+n.n.Addr()).CheckCompatibility(n.t.Context(),
		connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "note", Digest: by, ExcludeWrittenBy: []string{since}}))
	if err != nil || res.Msg.GetUncheckedShards() > 0 || res.Msg.GetFaultyEntities() > 0 {
		n.t.Fatalf("%v, %v", res, err)
	}
	return res.Msg.GetEntities()
}

// TestRollbackFindsEntitiesWrittenSince checks that entities written since the
// switch are found, no matter how many entities were written before and after
// the switch.
func TestRollbackFindsEntitiesWrittenSince(t *testing.T) {
	n := &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/guest", shards: 1}
	n.open()
	write := func(id string, times int) {
		t.Helper()
		for range times {
			n.notes(id)
		}
	}
	one := n.pushed(noter("1", ""))
	write("before", 100)
	two := n.pushed(noter("2", ""))
	for i, times := range []int{0, 40, 100, 300} {
		write(fmt.Sprint("since", i), 1)
		write("often", times)
		if i == 0 {
			continue
		}
		if got := n.touched(two, one); got != uint64(i+2) {
			t.Errorf("%d entities are found of %d", got, i+2)
		}
		n.stop()
		n.start()
	}
}

// TestRollbackNeedsReadableEntities checks that a rollback requires the
// previous module to be able to read exactly the entities that were written
// since it was active. Otherwise the rollback changes nothing and names the
// entities that it cannot read, unless the rollback is forced.
func TestRollbackNeedsReadableEntities(t *testing.T) {
	n := newNode(t)
	const both = `[{"type":"happened"},{"type":"new"}]`
	one := n.pushed(noter("1", `[{"type":"happened"}]`))
	n.notes("e0", "e1", "e2")
	two := n.pushed(emits(noter("2", both), "new"))
	touched := func() uint64 { t.Helper(); return n.touched(two, one) }
	if n := touched(); n != 0 {
		t.Errorf("%d entities were touched before anybody wrote", n)
	}
	n.notes("e1", "e1", "e3")
	if n := touched(); n != 2 {
		t.Errorf("%d entities were touched", n)
	}
	n.unfit("of 2 entities", "e1", "e3")
	n.unfit("events of type new", "e1", "e3")
	n.stop()
	n.start()
	n.unfit("at event 2 (new)", "e1", "e3") // the same after a restart, when the entities are read from the store
	if _, err := n.api().DeleteEntity(t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "note", EntityId: "e1"})); err != nil {
		t.Fatal(err)
	}
	n.unfit("of 1 entities", "e3") // a deleted entity does not have to be readable

	res, err := n.rollback(true)
	if err != nil || len(res.GetWarnings()) != 1 || !strings.Contains(res.GetWarnings()[0], "e3 at event 1") || n.serves("note") != one || n.forcedBy() != "anonymous" {
		t.Fatalf("forced: %v by %q, %v", res, n.forcedBy(), err)
	}
	n.notes("e0") // the entity was not written since, so the fault does not affect it
	if _, err := n.push(emits(noter("2", both), "new"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := n.api().DeleteEntity(t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "note", EntityId: "e3"})); err != nil {
		t.Fatal(err)
	}
	n.pushed(noter("3", both))
	n.notes("e0")
	if res, err = n.rollback(false); err != nil || len(res.GetWarnings()) > 0 || n.serves("note") != two || n.forcedBy() != "" {
		t.Fatalf("back to one that knows the events: %v by %q, %v", res, n.forcedBy(), err)
	}
	// Events that the module in between has written are checked, too, but only
	// events of types that are new in that module.
	if res, err = n.rollback(false); err != nil || n.serves("note") != one {
		t.Errorf("back to the first, which knows all that is left: %v, %v", res, err)
	}
}

// TestRollbackToFailingModuleIsRejected checks that a rollback to a module that traps
// on newer events is rejected, and that a failure in one entity is not reported
// for another.
func TestRollbackToFailingModuleIsRejected(t *testing.T) {
	n := newNode(t)
	broken := noter("1", "")
	broken.Apply = guest.Unreachable
	n.pushed(broken) // passes the check, because no entity exists on which the module could fail
	n.pushed(noter("2", ""))
	n.notes("e0", "e4", "e5", "e5")
	n.unfit("of 3 entities", "e0", "e4", "e5")
	n.unfit("unreachable", "e0", "e4", "e5")
	n.pushed(noter("3", ""))
	n.notes("e4")
	if res, err := n.rollback(false); err != nil || len(res.GetWarnings()) > 0 {
		t.Fatalf("to one that does not fail: %v, %v", res, err)
	}
	n.unfit("of 3 entities", "e0", "e4", "e5") // entities that two later modules have written
}

// TestTypesOfModuleAreRolledBackTogether checks that two types that changed
// together from one module to another are rolled back together, and that
// neither type is rolled back if one of the two must not be rolled back.
func TestTypesOfModuleAreRolledBackTogether(t *testing.T) {
	n := newNode(t)
	two := func(version, events string) guest.Module {
		m := emits(guest.Module{Good: "other", Bad: "note"}, "new")
		m.Manifest = fmt.Sprintf(`{"abi":1,"name":"two","version":%q,"entityTypes":[{"name":"other","kind":"event-sourced","encoding":"bytes"},{"name":"note","kind":"event-sourced","encoding":"bytes","events":%s}]}`, version, events)
		return m
	}
	one := n.pushed(two("1", `[{"type":"old"}]`))
	later := n.pushed(two("2", `[{"type":"new"}]`))
	if _, err := n.c.Send(t.Context(), client.Command{EntityType: "other", EntityID: "e1", Name: "go"}); err != nil {
		t.Fatal(err)
	}
	n.notes("e2")
	for _, entityType := range []string{"other", "note"} {
		_, err := client.RollbackModule(t.Context(), n.c, &modulev1.RollbackModuleRequest{EntityType: entityType})
		if reason(err) != "VERIFY_FAILED" || !strings.Contains(fmt.Sprint(err), "e2 at event 1 (new)") || n.serves("other") != later || n.serves("note") != later {
			t.Errorf("%s goes back although a note must not: %v", entityType, err)
		}
	}
	if _, err := n.api().DeleteEntity(t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "note", EntityId: "e2"})); err != nil {
		t.Fatal(err)
	}
	res, err := client.RollbackModule(t.Context(), n.c, &modulev1.RollbackModuleRequest{EntityType: "other"})
	if err != nil || !slices.Equal(res.GetEntityTypes(), []string{"note", "other"}) || n.serves("other") != one || n.serves("note") != one {
		t.Fatalf("back: %v, %v", res, err)
	}
	// A type that changed its module alone is rolled back alone.
	n.pushed(two("3", `[{"type":"new"}]`))
	n.pushed(noter("4", ""))
	if res, err = n.rollback(false); err != nil || !slices.Equal(res.GetEntityTypes(), []string{"note"}) {
		t.Errorf("alone: %v, %v", res, err)
	}
}
