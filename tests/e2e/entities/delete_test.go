package entities

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// TestDeletionIsVisibleToReaders checks that deleting an entity by request
// leaves one event with the ID of the request, which readers and subscribers
// see between the entity's two incarnations.
func TestDeletionIsVisibleToReaders(t *testing.T) {
	n := newNode(t)
	const history = "added added hostd.deleted(by-ann) added"
	n.send("x", "add", map[string]int{"amount": 1})
	n.send("x", "add", map[string]int{"amount": 2})
	n.send("x", "arm", arm{"never", 3_600_000, 1})
	for range 2 {
		if sequence := n.remove("x", "by-ann"); sequence != 3 {
			t.Fatalf("the tombstone is at %d", sequence)
		}
	}
	if e, err := n.c.Entity(t.Context(), "alarm", "x"); err != nil || e.GetStatus() != "deleted" || e.GetSequence() != 3 || len(e.GetTimers()) != 0 {
		t.Errorf("a deleted entity: %v %v", e, err)
	}
	for e, err := range n.c.List(t.Context(), &entityv1.ListEntitiesRequest{EntityType: "alarm"}) {
		t.Errorf("a deleted entity is listed: %v %v", e, err)
	}
	if got := n.folded("x", nil); got != `{"rung":0,"total":0}` {
		t.Errorf("the state of a deleted entity is %s", got)
	}
	if status, body := n.plain("x"); status != http.StatusNotFound || !strings.Contains(body, `"reason":"DELETED"`) {
		t.Errorf("a deleted entity under its plain path: %d %s", status, body)
	}
	if status, body := n.plain("nothing"); status != http.StatusNotFound || strings.Contains(body, "DELETED") {
		t.Errorf("an entity that nothing has happened to under its plain path: %d %s", status, body)
	}
	n.send("x", "add", map[string]int{"amount": 7})
	if sequence := n.remove("x", "by-ann"); sequence != 3 {
		t.Errorf("the request for a former life: %d", sequence)
	}
	if sequence := n.remove("nothing", "by-bob"); sequence != 0 {
		t.Errorf("deleting nothing: %d", sequence)
	}
	for range 2 {
		if got := n.history("x"); got != history {
			t.Errorf("readers see %s", got)
		}
		if got := n.subscribed(); got != history {
			t.Errorf("subscribers see %s", got)
		}
		if status, body := n.plain("x"); status != http.StatusOK || strings.ReplaceAll(body, " ", "") != `{"rung":0,"total":7}` {
			t.Errorf("an entity that was begun anew under its plain path: %d %s", status, body)
		}
		for sequence, want := range map[uint64]string{2: `{"rung":0,"total":3}`, 3: `{"rung":0,"total":0}`, 4: `{"rung":0,"total":7}`} {
			if got := n.folded("x", &sequence); got != want {
				t.Errorf("the state at %d is %s", sequence, got)
			}
		}
		if s, sequence := n.state("x"); s.Total != 7 || sequence != 4 {
			t.Errorf("%+v at %d", s, sequence)
		}
		n.stop()
		n.start()
	}
}

func (n *node) api() entityv1connect.EntityServiceClient {
	return entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.n.Addr())
}

func (n *node) remove(id, command string) uint64 {
	n.t.Helper()
	res, err := n.api().DeleteEntity(n.t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "alarm", EntityId: id, CommandId: command}))
	if err != nil {
		n.t.Fatal(err)
	}
	return res.Msg.GetSequence()
}

// plain requests an entity at its plain HTTP path.
func (n *node) plain(id string) (status int, body string) {
	n.t.Helper()
	res, err := http.Get("http://" + n.n.Addr() + "/e/alarm/" + id)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func (n *node) folded(id string, at *uint64) string {
	n.t.Helper()
	res, err := n.api().GetState(n.t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "alarm", EntityId: id, AtSequence: at}))
	if err != nil {
		n.t.Fatal(err)
	}
	if ends := res.Msg.GetSequence() == 3; res.Msg.GetDeleted() != ends {
		n.t.Errorf("at sequence %d the entity is deleted: %v", res.Msg.GetSequence(), !ends)
	}
	text, err := res.Msg.GetJson().MarshalJSON()
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), " ", "")
}

// event returns the form in which these tests compare events.
func event(kind, command string) string {
	if kind == "hostd.deleted" {
		return kind + "(" + command + ")"
	}
	return kind
}

func (n *node) history(id string) string {
	n.t.Helper()
	var all []string
	for e, err := range n.c.ReadEvents(n.t.Context(), client.EventRange{EntityType: "alarm", EntityID: id}) {
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, event(e.Type, e.CommandID))
	}
	return strings.Join(all, " ")
}

func (n *node) subscribed() string {
	n.t.Helper()
	var all []string
	for e, err := range n.c.Subscribe(n.t.Context(), client.Subscription{EntityType: "alarm"}) {
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, event(e.Type, e.CommandID))
	}
	return strings.Join(all, " ")
}
