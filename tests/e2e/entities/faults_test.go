package entities

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// faulty is a node with the guest in C whose commands commit every fault of the
// ABI. All its entities run on one executor.
type faulty struct {
	*node
	api entityv1connect.EntityServiceClient
}

func newFaulty(t *testing.T) faulty {
	n := &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/faulty/faulty.c", shards: 1}
	n.open()
	return faulty{n, entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.n.Addr())}
}

func (f faulty) try(id, command string) (client.Reply, error) {
	return f.c.Send(f.t.Context(), client.Command{EntityType: "faulty", EntityID: id, Name: command})
}

func (f faulty) add(id string) uint64 {
	f.t.Helper()
	r, err := f.try(id, "add")
	if err != nil {
		f.t.Fatalf("add to %s: %v", id, err)
	}
	return r.Sequence
}

// ask returns the number that a query answers.
func (f faulty) ask(id, query string) uint64 {
	f.t.Helper()
	r, err := f.c.Query(f.t.Context(), client.Query{EntityType: "faulty", EntityID: id, Name: query})
	if err != nil || len(r.Data) != 8 {
		f.t.Fatalf("query %s of %s: %x, %v", query, id, r.Data, err)
	}
	return binary.LittleEndian.Uint64(r.Data)
}

func (f faulty) get(id string) *entityv1.GetEntityResponse {
	f.t.Helper()
	e, err := f.c.Entity(f.t.Context(), "faulty", id)
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

// quarantined returns the IDs of the quarantined entities.
func (f faulty) quarantined() (ids []string) {
	f.t.Helper()
	list, err := f.api.ListEntities(f.t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: "faulty", Status: "quarantined"}))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range list.Msg.GetEntities() {
		ids = append(ids, e.GetEntityId())
	}
	return ids
}

func (f faulty) clear(id string) {
	f.t.Helper()
	if _, err := f.api.ClearFaults(f.t.Context(), connect.NewRequest(&entityv1.ClearFaultsRequest{EntityType: "faulty", EntityId: id})); err != nil {
		f.t.Fatal(err)
	}
}

// internal checks that a call failed because of a fault of the guest.
func internal(t *testing.T, what string, err error, text string) {
	t.Helper()
	var failed *client.Error
	if !errors.As(err, &failed) || failed.Code != connect.CodeInternal || !strings.Contains(failed.Message, text) {
		t.Errorf("%s: %v, want internal and %q", what, err, text)
	}
}

// TestGuestFaultsInC checks each fault that the ABI names: the caller gets
// internal, nothing is stored, the instance is closed, its other entity is
// loaded into a new instance, and the next command of the entity runs.
func TestGuestFaultsInC(t *testing.T) {
	f := newFaulty(t)
	const other = "other"
	f.add(other)
	for command, text := range map[string]string{
		"trap": "trap: unreachable", "divide": "divide by zero", "read-outside": "out of bounds",
		"log-outside": "forbidden call", "exit": "exited with code 3", "loop": "fuel spent", "recurse": "hostd_handle: ",
		"span-outside": "span outside memory", "span-overflow": "span outside memory",
		"no-frames": "frame ", "frame-too-long": "frame ", "unknown-kind": "frame ", "misplaced-kind": "frame ",
		"two-replies": "frame ", "tag-first": "frame ", "bad-expression": "frame ",
	} {
		id := "of-" + command
		f.add(id)
		if f.ask(other, "handled") == 0 {
			t.Fatalf("%s: the instance has had no command: the test shows nothing", command)
		}
		_, err := f.try(id, command)
		internal(t, command, err, "guest fault")
		e := f.get(id)
		if e.GetSequence() != 1 || e.GetFaults() != 1 || !strings.Contains(e.GetLastError(), text) {
			t.Errorf("%s: sequence %d, %d faults, %q; want 1, 1 and %q", command, e.GetSequence(), e.GetFaults(), e.GetLastError(), text)
		}
		if handled, loaded, count := f.ask(other, "handled"), f.ask(other, "loaded"), f.ask(other, "count"); handled != 0 || loaded != 1 || count != 1 {
			t.Errorf("%s: the other entity's instance has had %d commands and holds %d entities, its count is %d", command, handled, loaded, count)
		}
		if sequence, count := f.add(id), f.ask(id, "count"); sequence != 2 || count != 2 {
			t.Errorf("%s: afterwards the sequence is %d and the count %d", command, sequence, count)
		}
		if e := f.get(id); e.GetFaults() != 0 {
			t.Errorf("%s: after a command that ran there are %d faults", command, e.GetFaults())
		}
	}
	for query, text := range map[string]string{"trap": "unreachable", "event": "frame "} {
		_, err := f.c.Query(t.Context(), client.Query{EntityType: "faulty", EntityID: other, Name: query})
		internal(t, "query "+query, err, "guest fault")
		if e := f.get(other); e.GetSequence() != 1 || !strings.Contains(e.GetLastError(), text) {
			t.Errorf("query %s: sequence %d, %q", query, e.GetSequence(), e.GetLastError())
		}
		f.add("of-trap")
		f.clear(other)
	}
	if quarantined := f.quarantined(); len(quarantined) > 0 {
		t.Errorf("%v are quarantined", quarantined)
	}
}

// TestUnstorableOutputsInC checks that a command whose output exceeds a limit
// is rejected each time it is sent, and has no effect.
func TestUnstorableOutputsInC(t *testing.T) {
	f := newFaulty(t)
	for command, want := range map[string]struct {
		code connect.Code
		text string
	}{
		"129-events": {connect.CodeOutOfRange, "events of one command: 129, limit 128"}, "large-event": {connect.CodeOutOfRange, "limit 65536"},
		"large-reply": {connect.CodeOutOfRange, "limit 262144"}, "large-output": {connect.CodeOutOfRange, "output over limit"},
		"nameless-event": {connect.CodeInvalidArgument, "event type: is empty"},
	} {
		id := "of-" + command
		f.add(id)
		for range 4 {
			_, err := f.try(id, command)
			var failed *client.Error
			if !errors.As(err, &failed) || failed.Code != want.code || !strings.Contains(failed.Message, want.text) {
				t.Errorf("%s: %v, want %v and %q", command, err, want.code, want.text)
			}
		}
		if e := f.get(id); e.GetSequence() != 1 || e.GetFaults() != 0 || e.GetLastError() != "" {
			t.Errorf("%s: sequence %d, %d faults, %q", command, e.GetSequence(), e.GetFaults(), e.GetLastError())
		}
		if sequence, count := f.add(id), f.ask(id, "count"); sequence != 2 || count != 2 {
			t.Errorf("%s: afterwards the sequence is %d and the count %d", command, sequence, count)
		}
	}
	_, err := f.try("a", "long-rejection")
	var rejected *client.RejectedError
	if !errors.As(err, &rejected) || len(rejected.Message) != 4096 {
		t.Errorf("a long rejection: %v", err)
	}
}

// TestValidEdgeOutputsInC checks outputs that look like faults but are valid.
func TestValidEdgeOutputsInC(t *testing.T) {
	f := newFaulty(t)
	f.add("a")
	_, err := f.try("a", "reject-after-event")
	var rejected *client.RejectedError
	if !errors.As(err, &rejected) || rejected.Code != "changed_my_mind" {
		t.Errorf("a rejection behind an event: %v", err)
	}
	if sequence, count := f.get("a").GetSequence(), f.ask("a", "count"); sequence != 1 || count != 1 {
		t.Errorf("after it the sequence is %d and the count %d", sequence, count)
	}
	for _, command := range []string{"flood-log", "grow-all"} {
		if _, err := f.try("a", command); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	if e := f.get("a"); f.add("a") != 2 || e.GetFaults() != 0 {
		t.Errorf("in the end: %v", e)
	}
}

// TestUnappliableEventQuarantinesEntity checks that an event that cannot be applied is
// never skipped. Its entity is stopped and then quarantined. Its history can
// still be read, and other entities are not affected.
func TestUnappliableEventQuarantinesEntity(t *testing.T) {
	f := newFaulty(t)
	f.add("other")
	want := 0
	for command, text := range map[string]string{"unappliable": "status 1", "trapping": "unreachable", "endless": "fuel spent", "timed": "forbidden call"} {
		id := "of-" + command
		f.add(id)
		if r, err := f.try(id, command); err != nil || r.Sequence != 2 {
			t.Fatalf("%s: %+v, %v", command, r, err)
		}
		_, err := f.try("breaker-of-"+command, "trap") // closes the instance, so that all entities are loaded again
		internal(t, "trap", err, "unreachable")
		for range 3 {
			_, err := f.c.Query(t.Context(), client.Query{EntityType: "faulty", EntityID: id, Name: "count"})
			internal(t, command, err, "hostd_apply")
		}
		want++
		if e := f.get(id); e.GetStatus() != "quarantined" || e.GetSequence() != 2 || !strings.Contains(e.GetLastError(), text) {
			t.Errorf("%s: %s at %d, %q", command, e.GetStatus(), e.GetSequence(), e.GetLastError())
		}
		if got := f.ask("other", "count"); got != 1 {
			t.Errorf("%s: the other entity's count is %d", command, got)
		}
	}
	if quarantined := f.quarantined(); len(quarantined) != want {
		t.Errorf("%v are quarantined", quarantined)
	}
}

// TestFaultLadder checks the consequences of repeated faults: the first fault
// closes the instance, after the second the entity runs in its own instance,
// and the third quarantines the entity for a while. An operator can see and end
// the quarantine.
func TestFaultLadder(t *testing.T) {
	f := newFaulty(t)
	for _, id := range []string{"a", "b", "c"} {
		f.add(id)
	}
	fault := func() {
		t.Helper()
		_, err := f.try("a", "trap")
		internal(t, "trap", err, "unreachable")
	}
	loaded := func(id string) uint64 { t.Helper(); return f.ask(id, "loaded") }
	fault()
	if b, c, a := loaded("b"), loaded("c"), loaded("a"); b != 1 || c != 2 || a != 3 {
		t.Errorf("after a fault the instances hold %d, %d and %d entities, want one with all, loaded one by one", b, c, a)
	}
	fault()
	f.ask("b", "count")
	if a, b, c := loaded("a"), loaded("b"), loaded("c"); a != 1 || b != 1 || c != 2 {
		t.Errorf("after two the instances hold %d, %d and %d entities, want one alone", a, b, c)
	}
	fault()
	if e := f.get("a"); e.GetStatus() != "quarantined" || e.GetFaults() != 3 || e.GetQuarantinedUntil() == nil {
		t.Errorf("after three: %v", e)
	}
	_, err := f.try("a", "add")
	internal(t, "a quarantined entity", err, "quarantined")
	if got := fmt.Sprint(f.quarantined()); got != "[a]" {
		t.Errorf("%s are quarantined", got)
	}
	if loaded("b") != 2 || f.ask("c", "count") != 1 {
		t.Error("the others are not as they were")
	}
	f.clear("a")
	if e := f.get("a"); e.GetStatus() != "active" || e.GetFaults() != 0 || e.GetQuarantinedUntil() != nil || len(f.quarantined()) != 0 {
		t.Errorf("cleared: %v", e)
	}
	if got := f.add("a"); got != 2 {
		t.Errorf("after that the sequence is %d", got)
	}
}

// TestPoisonedTimerIsSkipped checks that a timer whose command faults
// quarantines its entity, that an operator can see and skip the timer, and that
// the skip is recorded.
func TestPoisonedTimerIsSkipped(t *testing.T) {
	f := newFaulty(t)
	f.add("a")
	if _, err := f.try("a", "arm"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testkit.Patience); f.get("a").GetStatus() != "quarantined"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the entity is never quarantined: %v", f.get("a"))
		}
	}
	if e := f.get("a"); len(e.GetTimers()) != 1 || e.GetTimers()[0].GetName() != "bomb" || e.GetTimers()[0].GetCommand() != "trap" {
		t.Fatalf("the timers are %v", e.GetTimers())
	}
	for range 2 { // the second time there is nothing left to do
		skip := &entityv1.SkipTimerRequest{EntityType: "faulty", EntityId: "a", Timer: "bomb", CommandId: "by-ann"}
		if _, err := f.api.SkipTimer(t.Context(), connect.NewRequest(skip)); err != nil {
			t.Fatal(err)
		}
	}
	f.clear("a")
	if got := f.add("a"); got != 2 {
		t.Errorf("afterwards the sequence is %d", got)
	}
	e := f.get("a")
	if len(e.GetTimers()) != 0 || len(e.GetOperatorActions()) != 1 || e.GetOperatorActions()[0].GetKind() != "skip-timer" || e.GetOperatorActions()[0].GetTimer() != "bomb" || e.GetOperatorActions()[0].GetCommandId() != "by-ann" {
		t.Errorf("timers %v, acts %v", e.GetTimers(), e.GetOperatorActions())
	}
}
