package entities

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// seen formats an event as a reader receives it.
func seen(e client.Event) string { return e.Type + "<" + e.StoredType + " " + string(e.Data) }

// TestReadersGetUpcastEvents checks that readers who request it receive older
// events upcast by the active module, whether they read an entity or a type,
// and that the same applies to the states of a durable-state type. Other
// readers receive the stored form. If a module has older versions but does not
// export the upcast function, or if it fails, the error names the module.
func TestReadersGetUpcastEvents(t *testing.T) {
	n := newNode(t)
	n.orders("before", true)
	n.place("o1", `{"sku":"tea","count":2,"cents":7}`)
	n.orders("now", true)
	n.place("o1", `{"items":[{"sku":"jam","count":1,"cents":3}]}`)
	const (
		old   = `{"sku":"tea","count":2,"cents":7}`
		today = `{"items":[{"sku":"tea","count":2,"cents":7}]}`
		newer = `placed.v2< {"items":[{"sku":"jam","count":1,"cents":3}]}`
	)
	read := func(entityType, id string, upcast bool) (list []string, err error) {
		for e, err := range n.c.ReadEvents(t.Context(), client.EventRange{EntityType: entityType, EntityID: id, Upcast: upcast}) {
			if err != nil {
				return list, err
			}
			list = append(list, seen(e))
		}
		return list, nil
	}
	subscribe := func(entityType string, upcast bool) (list []string, err error) {
		for d, err := range n.c.Subscribe(t.Context(), client.Subscription{EntityType: entityType, Upcast: upcast}) {
			if err != nil {
				return list, err
			}
			list = append(list, seen(d.Event))
		}
		return list, nil
	}
	is := func(what string, got []string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", what, got, err, want)
		}
	}
	for range 2 { // the second call uses an existing instance
		got, err := read("order", "o1", true)
		is("an entity, upcast", got, err, "placed.v2<placed "+today, newer)
		got, err = subscribe("order", true)
		is("a type, upcast", got, err, "placed.v2<placed "+today, newer)
	}
	got, err := read("order", "o1", false)
	is("an entity", got, err, "placed< "+old, newer)
	got, err = subscribe("order", false)
	is("a type", got, err, "placed< "+old, newer)

	n.drafts("before", true)
	n.command("draft", "d1", "write", `{"words":3}`)
	n.drafts("later", true)
	n.command("draft", "d1", "write", `{"words":1,"french":true}`)
	got, err = read("draft", "d1", true)
	is("states, upcast", got, err, `state.v2<state {"english":3,"french":0}`, `state.v2< {"english":3,"french":1}`)
	got, err = read("alarm", "none", true)
	is("of a type that has one form alone", got, err)

	const older = `{"abi":1,"name":"m","entityTypes":[{"name":"shop","kind":"event-sourced","encoding":"bytes","events":[{"type":"sold.v2"},{"type":"sold","upcastTo":"sold.v2"}]}]}`
	if _, err := n.c.Upload(t.Context(), guest.Module{Bad: "shop", Manifest: older}.Build(), true); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"an entity": second(read("shop", "s", true)), "a type": second(subscribe("shop", true))} {
		if client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(fmt.Sprint(err), "it does not export hostd_upcast") {
			t.Errorf("%s of a module without the export: %v", what, err)
		}
	}
	if _, err := read("shop", "s", false); err != nil {
		t.Errorf("its events as they are: %v", err)
	}
}

func second(_ []string, err error) error { return err }
