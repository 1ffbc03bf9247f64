package entities

import (
	"encoding/json"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// TestTransientEntitiesStartEmptyAfterRestart checks that a transient entity keeps its state
// while it is resident, can be listed, leaves no events, and starts empty after
// a restart.
func TestTransientEntitiesStartEmptyAfterRestart(t *testing.T) {
	n := newNode(t)
	add := func(id, command string) (s state, r client.Reply) {
		t.Helper()
		r, err := n.c.Send(t.Context(), client.Command{EntityType: "hub", EntityID: id, Name: "add", Data: []byte(`{"amount":2}`), ID: command})
		if err == nil {
			err = json.Unmarshal(r.Data, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s, r
	}
	for i := range 5 {
		if s, r := add("x", ""); s.Total != int64(2*i+2) || r.Sequence != 0 || r.EventCount != 0 {
			t.Fatalf("%+v %+v", s, r)
		}
	}
	add("x", "once")
	if s, r := add("x", "once"); !r.Duplicate || s.Total != 12 {
		t.Errorf("a command sent again: %+v %+v", s, r)
	}
	if e, err := n.c.Entity(t.Context(), "hub", "x"); err != nil || e.GetStatus() != "active" || !e.GetResident() || e.GetSequence() != 0 {
		t.Errorf("%v %v", e, err)
	}
	for e, err := range n.c.ReadEvents(t.Context(), client.EventRange{EntityType: "hub", EntityID: "x"}) {
		t.Errorf("it has left %v %v", e, err)
	}
	_, err := n.api().GetState(t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "hub", EntityId: "x"}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a state that nobody keeps: %v", err)
	}
	n.stop()
	n.start()
	if s, _ := add("x", "once"); s.Total != 2 {
		t.Errorf("after a stop: %+v", s)
	}
}

// TestSingletonIsResidentBeforeFirstRequest checks that the only entity of a singleton type is
// resident before the first request, also after a restart, and that the type
// has no other entity.
func TestSingletonIsResidentBeforeFirstRequest(t *testing.T) {
	n := newNode(t)
	for range 2 {
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			e, err := n.c.Entity(t.Context(), "chief", "singleton")
			if err == nil && e.GetResident() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("it never comes: %v %v", e, err)
			}
		}
		if in := n.residents("chief"); in != 1 {
			t.Errorf("%d are in memory", in)
		}
		n.stop()
		n.start()
	}
	if _, err := n.c.Send(t.Context(), client.Command{EntityType: "chief", EntityID: "singleton", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
		t.Error(err)
	}
	api := n.api()
	_, err := api.SendCommand(t.Context(), connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "chief", EntityId: "deputy", Command: "add"}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("another one: %v", err)
	}
	if in := n.residents("chief"); in != 1 {
		t.Errorf("%d are in memory", in)
	}
}

// TestStraySendsBecomeDeadLetters checks that a message becomes a dead letter
// if it is sent to a transient entity, or to an id that a singleton type does
// not have.
func TestStraySendsBecomeDeadLetters(t *testing.T) {
	n := newNode(t)
	n.send("a", "stray", map[string]int{"amount": 1})
	codes := map[string]string{}
	for end := time.Now().Add(60 * time.Second); len(codes) < 2; time.Sleep(20 * time.Millisecond) {
		res, err := n.api().ListDeadLetters(t.Context(), connect.NewRequest(&entityv1.ListDeadLettersRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range res.Msg.GetLetters() {
			codes[l.GetEntityType()+"/"+l.GetEntityId()] = l.GetCode()
		}
		if time.Now().After(end) {
			t.Fatalf("the dead letters are %v", codes)
		}
	}
	if codes["chief/deputy"] != "not_found" || codes["hub/x"] != "transient" {
		t.Errorf("%v", codes)
	}
}
