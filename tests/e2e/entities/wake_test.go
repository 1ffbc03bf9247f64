package entities

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// park makes an entity of the guest fault until it is quarantined.
func (n *node) park(id string) {
	n.t.Helper()
	for range 3 {
		if _, err := n.c.Send(n.t.Context(), client.Command{EntityType: "alarm", EntityID: id, Name: "break", Data: []byte(`{"name":"it"}`)}); client.CodeOf(err) != connect.CodeInternal {
			n.t.Fatal(err)
		}
	}
	if e, err := n.c.Entity(n.t.Context(), "alarm", id); err != nil || e.GetStatus() != "quarantined" {
		n.t.Fatalf("after three faults: %v, %v", e, err)
	}
}

// TestFixedModuleReleasesQuarantinedEntities checks that activating a fixed
// module releases the entities that were quarantined under the previous module.
func TestFixedModuleReleasesQuarantinedEntities(t *testing.T) {
	n := newNode(t)
	n.send("a", "add", map[string]int{"amount": 1})
	n.park("a")
	wasm := testkit.BuildGuest(t, n.module)
	mended := append(wasm[:len(wasm):len(wasm)], 0, 2, 1, 'x') // the same module with an empty custom section
	if _, err := n.c.Upload(t.Context(), mended, true); err != nil {
		t.Fatal(err)
	}
	if e, err := n.c.Entity(t.Context(), "alarm", "a"); err != nil || e.GetStatus() == "quarantined" {
		t.Errorf("under another module: %v, %v", e, err)
	}
	n.send("a", "add", map[string]int{"amount": 1})
	if s, sequence := n.state("a"); s.Total != 2 || sequence != 2 {
		t.Errorf("its state is %+v at %d", s, sequence)
	}
}

// TestQuarantinedEntitiesOfTypeAreCleared checks that one call releases the
// quarantined entities of a type in all shards.
func TestQuarantinedEntitiesOfTypeAreCleared(t *testing.T) {
	n := newNode(t)
	const many = 12
	for i := range many {
		n.park(fmt.Sprint("e", i))
	}
	res, err := n.api().ClearTypeFaults(t.Context(), connect.NewRequest(&entityv1.ClearTypeFaultsRequest{EntityType: "alarm", Limit: 5}))
	if err != nil || res.Msg.GetCleared() != 5 || !res.Msg.GetMore() {
		t.Fatalf("five of them: %v, %v", res, err)
	}
	res, err = n.api().ClearTypeFaults(t.Context(), connect.NewRequest(&entityv1.ClearTypeFaultsRequest{EntityType: "alarm"}))
	if err != nil || res.Msg.GetCleared() != many-5 || res.Msg.GetMore() {
		t.Fatalf("the others: %v, %v", res, err)
	}
	for i := range many {
		n.send(fmt.Sprint("e", i), "add", map[string]int{"amount": 1})
	}
	if _, err = n.api().ClearTypeFaults(t.Context(), connect.NewRequest(&entityv1.ClearTypeFaultsRequest{EntityType: "nobody"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("of an unknown type: %v", err)
	}
}
