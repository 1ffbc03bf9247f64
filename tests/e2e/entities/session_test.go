package entities

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func (n *node) visit(id, name, payload string) client.Reply {
	n.t.Helper()
	r, err := n.c.Send(n.t.Context(), client.Command{EntityType: "session", EntityID: id, Name: name, Data: []byte(payload)})
	if err != nil {
		n.t.Fatalf("%s %s: %v", name, id, err)
	}
	return r
}

// TestDurableStatesSurviveRestarts checks that a durable-state type keeps its
// state over restarts. Its sequence is the revision of the state, readers and
// subscribers receive each revision complete, and a command that changes
// nothing makes no revision.
func TestDurableStatesSurviveRestarts(t *testing.T) {
	n := &node{t: t, dir: t.TempDir(), module: "examples/wasm/session"}
	n.open()
	const id = "mall7-user42"
	carts := []string{"", "null", `[{"item":"tea","quantity":1}]`, `[{"item":"tea","quantity":3}]`, "null"}
	if r := n.visit(id, "login", ""); r.Sequence != 1 || r.EventCount != 1 {
		t.Fatalf("the first revision: %+v", r)
	}
	if r := n.visit(id, "login", ""); r.Sequence != 1 || r.EventCount != 0 {
		t.Errorf("a command that changes nothing: %+v", r)
	}
	n.visit(id, "add", `{"item":"tea","quantity":1}`)
	_, err := n.c.Send(t.Context(), client.Command{EntityType: "session", EntityID: id, Name: "add", Data: []byte(`{"item":"","quantity":1}`)})
	var rejected *client.RejectedError
	if !errors.As(err, &rejected) || rejected.Code != "invalid_line" {
		t.Errorf("a refused command: %v", err)
	}
	n.visit(id, "add", `{"item":"tea","quantity":2}`)
	n.visit(id, "logout", "")
	for life := range 3 {
		a, err := n.c.Query(t.Context(), client.Query{EntityType: "session", EntityID: id, Name: "cart"})
		var now struct{ Cart json.RawMessage }
		if err == nil {
			err = json.Unmarshal(a.Data, &now)
		}
		if err != nil || a.Sequence != uint64(len(carts)-1) || string(now.Cart) != carts[len(carts)-1] {
			t.Fatalf("life %d: %s at %d, %v", life, a.Data, a.Sequence, err)
		}
		n.revisions(id, carts)
		if life == 2 {
			break
		}
		n.stop()
		n.start()
		quantity := 5 + life
		n.visit(id, "login", "")
		r := n.visit(id, "add", fmt.Sprintf(`{"item":"cup","quantity":%d}`, quantity))
		carts = append(carts, "null", fmt.Sprintf(`[{"item":"cup","quantity":%d}]`, quantity), "null")
		if r.Sequence != uint64(len(carts)-2) {
			t.Fatalf("life %d goes on at %d", life, r.Sequence)
		}
		n.visit(id, "logout", "")
	}
}

// revisions checks what readers, subscribers and GetState return for each
// revision.
func (n *node) revisions(id string, carts []string) {
	n.t.Helper()
	cart := func(state []byte) string {
		var s struct{ Cart json.RawMessage }
		if err := json.Unmarshal(state, &s); err != nil {
			n.t.Fatal(err)
		}
		return string(s.Cart)
	}
	seen := 0
	for e, err := range n.c.Subscribe(n.t.Context(), client.Subscription{EntityType: "session"}) {
		if err != nil {
			n.t.Fatal(err)
		}
		if seen++; e.Type != "state" || e.EntityID != id || e.Sequence != uint64(seen) || cart(e.Data) != carts[seen] {
			n.t.Errorf("subscribers see %s %s %d %s, want %s", e.EntityID, e.Type, e.Sequence, e.Data, carts[seen])
		}
	}
	for e, err := range n.c.ReadEvents(n.t.Context(), client.EventRange{EntityType: "session", EntityID: id}) {
		if err != nil || cart(e.Data) != carts[e.Sequence] {
			n.t.Errorf("readers see %d %s %v, want %s", e.Sequence, e.Data, err, carts[e.Sequence])
		}
	}
	if seen != len(carts)-1 {
		n.t.Errorf("%d revisions, want %d", seen, len(carts)-1)
	}
	for revision := range uint64(len(carts)) {
		res, err := n.api().GetState(n.t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "session", EntityId: id, AtSequence: &revision}))
		if err != nil {
			n.t.Fatal(err)
		}
		text, err := res.Msg.GetJson().MarshalJSON()
		if err != nil {
			n.t.Fatal(err)
		}
		if want := carts[revision]; want != "" && cart(compact(n.t, text)) != want {
			n.t.Errorf("the state at %d is %s, want %s", revision, text, want)
		}
	}
}

func compact(t *testing.T, text []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestIdleTimesAreSettings checks that the idle time of sessions is a setting
// that also applies to resident sessions and survives a restart. A session that
// logs out leaves memory at once.
func TestIdleTimesAreSettings(t *testing.T) {
	n := &node{t: t, dir: t.TempDir(), module: "examples/wasm/session"}
	n.open()
	const sessions, key = 20, "entity.session.passivate-after"
	for i := range sessions {
		n.visit(fmt.Sprintf("mall1-user%d", i), "login", "")
	}
	if in := n.residents("session"); in != sessions {
		t.Fatalf("%d sessions are in memory", in)
	}
	n.visit("mall1-user0", "logout", "")
	n.awaitResidents(sessions - 1)
	if text := n.metrics(); !strings.Contains(text, "\nhostd_passivations_total 1\n") {
		t.Error("that a handler let its entity leave is not counted")
	}
	if _, err := n.c.PutSetting(t.Context(), key, "soon"); err == nil || !strings.Contains(err.Error(), "30m") {
		t.Errorf("a setting that says nothing: %v", err)
	}
	for range 2 {
		if _, err := n.c.PutSetting(t.Context(), key, "200ms"); err != nil {
			t.Fatal(err)
		}
		n.awaitResidents(0)
		n.stop()
		n.start()
		n.visit("mall1-user1", "login", "")
		n.awaitResidents(0)
	}
	if _, err := n.c.PutSetting(t.Context(), key, "never"); err != nil {
		t.Fatal(err)
	}
	n.visit("mall1-user2", "login", "")
	if in := n.residents("session"); in != 1 {
		t.Errorf("%d sessions are in memory", in)
	}
}

func (n *node) awaitResidents(want int) {
	n.t.Helper()
	for end := time.Now().Add(60 * time.Second); n.residents("session") != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("%d sessions are in memory, want %d", n.residents("session"), want)
		}
	}
}
