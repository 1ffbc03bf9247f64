package entity

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// fleeting returns a world with a transient type.
func fleeting(t *testing.T) *world {
	w := quiet(t)
	w.transient = true
	w.handOver()
	return w
}

// TestTransientEntitiesWriteNoRecord checks that commands write no record, that
// the state lasts while the entity is in memory, that a new leader starts with
// an empty state, and that a command id takes effect once while the entity is
// in memory.
func TestTransientEntitiesWriteNoRecord(t *testing.T) {
	w := fleeting(t)
	for i, want := range []string{"1", "2", "3"} {
		if res := w.ask(request.Command, "add", "c"+want); res.Err != nil || string(res.Payload) != want || res.Sequence != 0 || res.EventCount != 0 {
			t.Fatalf("command %d: %+v", i, res)
		}
	}
	if res := w.ask(request.Command, "add", "c2"); !res.Duplicate || string(res.Payload) != "2" {
		t.Errorf("a command sent again: %+v", res)
	}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "3" {
		t.Errorf("a query: %+v", res)
	}
	if res := w.ask(request.Command, "deny", "d"); !isRejected(res.Err) {
		t.Errorf("a refused command: %+v", res)
	}
	if len(w.log) != 0 || len(w.flights) != 0 {
		t.Fatalf("%d records were written", len(w.log))
	}
	w.ask(request.Passivate, "", "")
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "0" {
		t.Errorf("after it has left: %+v", res)
	}
	w.ask(request.Command, "add", "c4")
	w.handOver()
	if res := w.ask(request.Command, "add", "c4"); res.Duplicate || string(res.Payload) != "1" {
		t.Errorf("at the next leader: %+v", res)
	}
	if res := w.ask(request.Delete, "", "x"); res.Err != nil {
		t.Error(res.Err)
	}
	for _, kind := range []request.Kind{request.SkipTimer, request.Redeliver} {
		var why *request.RejectedError
		if res := w.ask(kind, "t", "y"); !errors.As(res.Err, &why) || why.Code != request.CodeTransient {
			t.Errorf("what leaves a record, of kind %d: %v", kind, res.Err)
		}
	}
	if len(w.log) != 0 {
		t.Errorf("%d records were written", len(w.log))
	}
}

func isRejected(err error) bool {
	var rejected *request.RejectedError
	return errors.As(err, &rejected)
}

// TestTransientAnswerNeedsConfirmedLeadership checks that a node that has not
// confirmed its leadership sends no answer, not even to a retry.
func TestTransientAnswerNeedsConfirmedLeadership(t *testing.T) {
	w := fleeting(t)
	w.ask(request.Command, "add", "a")
	for _, id := range []string{"b", "a"} {
		var got asked
		w.core.submit(w.now, []*request.Request{{Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Shard: worldShard,
			Name: "add", Payload: []byte("1"), ID: journal.CommandID(id), ExpectedSequence: request.NoExpectation, Done: &got}})
		w.core.runTurns()
		w.core.endTurn()
		if got.got != nil || len(w.rounds) != 1 {
			t.Fatalf("%s: answered %+v with %d rounds asked", id, got.got, len(w.rounds))
		}
		w.rounds = nil
		w.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: w.term + 5}) // another node is elected
		var lost *sharding.NotLeaderError
		if got.got == nil || !errors.As(got.got.Err, &lost) && !errors.Is(got.got.Err, request.ErrOutcomeUnknown) {
			t.Fatalf("%s: %+v", id, got.got)
		}
		w.term += 5
		w.handOver()
		w.ask(request.Command, "add", "a")
	}
}

func TestForbiddenTransientOutputIsFault(t *testing.T) {
	w := fleeting(t)
	w.schedules = []abi.Timer{{Name: []byte("t"), Expression: []byte("@daily"), Command: []byte("tick")}}
	for _, name := range []string{"schedule", "delete", "emit"} {
		var fault *request.GuestFaultError
		if res := w.ask(request.Command, name, name); !errors.As(res.Err, &fault) || !strings.Contains(fault.Message, "not allowed") {
			t.Errorf("%s: %+v", name, res)
		}
		w.ask(request.Clear, "", "")
	}
}

// TestSingletonIsAlwaysResident checks that the entity is in memory on the leader of its
// shard, before its first command, after a request to passivate it, and while
// it is idle.
func TestSingletonIsAlwaysResident(t *testing.T) {
	for _, transient := range []bool{false, true} {
		w := quiet(t)
		w.autostart, w.singleton, w.transient = true, true, transient
		w.core.opts.PassivateAfter = time.Second
		w.handOver()
		w.later(10 * time.Second)
		in := func(when string) {
			t.Helper()
			w.later(10 * time.Second)
			if got := w.inMemory(); len(got) != 1 || got[0] != "singleton" {
				t.Fatalf("transient %v: %s, in memory are %v", transient, when, got)
			}
		}
		in("before its first command")
		if res := w.askOf("singleton", request.Command, "add", "a"); res.Err != nil || string(res.Payload) != "1" {
			t.Fatal(res)
		}
		for _, kind := range []request.Kind{request.Command, request.Query} {
			if res := w.askOf("other", kind, "add", "b"); !errors.Is(res.Err, sharding.ErrInvalidName) || !strings.Contains(res.Err.Error(), `"singleton"`) {
				t.Errorf("a command with a different id: %+v", res)
			}
		}
		w.askOf("other", request.Passivate, "", "")
		if res := w.askOf("singleton", request.Passivate, "", ""); !isRejected(res.Err) {
			t.Errorf("it is let go: %+v", res)
		}
		in("after it was asked to leave")
		if res := w.askOf("singleton", request.Query, "sum", ""); string(res.Payload) != "1" {
			t.Errorf("after it was asked to leave: %+v", res)
		}
		w.handOver()
		in("at the next leader")
		if records := len(w.log); transient && records > 0 || !transient && records != 1 {
			t.Errorf("transient %v: %d records", transient, records)
		}
		w.askOf("singleton", request.Delete, "", "d")
		in("after it was deleted")
		if res := w.askOf("singleton", request.Query, "sum", ""); string(res.Payload) != "0" {
			t.Errorf("after it was deleted: %+v", res)
		}
	}
}
