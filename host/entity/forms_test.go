package entity

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestInvalidPayloadIsRejectedWithoutGuestCall checks that an invalid payload
// is rejected without a guest call, that a message with an invalid payload
// becomes a dead letter, and that duplicates and commands of timers are not
// checked.
func TestInvalidPayloadIsRejectedWithoutGuestCall(t *testing.T) {
	w := quiet(t)
	w.alarm = &abi.Timer{Name: []byte("later"), Due: 1, Command: []byte("add"), Payload: []byte("1")}
	for id, name := range map[string]string{"before": "add", "set": "alarm"} {
		if res := w.ask(request.Command, name, id); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	text, err := schema.Compile([]byte(`{"type":"string"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	set := &checks{on: true}
	w.typ.Forms.Commands, w.typ.Forms.Queries = map[string]*schema.Schema{"add": text, "note": text}, map[string]*schema.Schema{"sum": text}
	w.typ.Settings = set
	records := len(w.log)
	for _, c := range []struct {
		kind request.Kind
		name string
		id   string
	}{{request.Command, "add", "a"}, {request.Query, "sum", ""}, {request.StaleQuery, "sum", ""}} {
		res := w.ask(c.kind, c.name, c.id)
		var invalid *request.InvalidPayloadError
		if !errors.As(res.Err, &invalid) || len(invalid.Violations) != 1 || invalid.Violations[0].Text != "is a number, not a string" || len(w.log) != records {
			t.Errorf("%s: %+v, %d records", c.name, res, len(w.log)-records)
		}
	}
	if res := w.ask(request.Command, "add", "before"); res.Err != nil || !res.Duplicate {
		t.Errorf("a retry of an executed command: %+v", res)
	}

	from, to := sharding.EntityID{Type: "any", ID: "a"}, sharding.EntityID{Type: "tally", ID: "y"}
	w.messages.all[pair{from, to}] = []journal.Message{{Source: from, Destination: to, Number: 1, Command: "note", Payload: []byte("1")}}
	deliver := &request.Request{Kind: request.Deliver, Entity: to, Name: "note", Payload: []byte("1"), ServerID: true, Shard: worldShard,
		ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{Source: from, Number: 1}}
	got := &asked{}
	deliver.ID, deliver.Done = request.SendCommand(deliver.Delivery.Source, 1), got
	w.core.submit(w.now, []*request.Request{deliver})
	w.settleDown()
	if got.got == nil || got.got.Err != nil || len(w.messages.deadLetters) != 1 {
		t.Fatalf("a message: %+v, %d dead letters", got.got, len(w.messages.deadLetters))
	}
	why := &journal.Refusal{}
	for i := range w.log {
		if section := w.log[i].Section(journal.SectionRefusal); section != nil {
			found, err := journal.DecodeRefusal(section)
			if err != nil {
				t.Fatal(err)
			}
			why = &found
		}
	}
	if string(why.Code) != request.CodeInvalidPayload || !strings.Contains(string(why.Message), "is a number, not a string") {
		t.Errorf("the dead letter says %s: %s", why.Code, why.Message)
	}

	set.on = false
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "2" {
		t.Errorf("what the timer has added: %+v", res)
	}
	if res := w.ask(request.Command, "add", "b"); res.Err != nil {
		t.Errorf("unchecked: %v", res.Err)
	}
}

// TestMessagesMayHaveUnknownMembers checks that unknown members are rejected from clients
// and accepted in messages, and that an empty payload counts as null.
func TestMessagesMayHaveUnknownMembers(t *testing.T) {
	closed, err := schema.Compile([]byte(`{"type":["object","null"],"additionalProperties":false}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	typ := &Type{TypeInputs: TypeInputs{Forms: PayloadForms{Commands: map[string]*schema.Schema{"a": closed}}}}
	message := &request.Request{Kind: request.Deliver, Name: "a", Payload: []byte(`{"later":1}`), Delivery: &request.Delivery{}}
	client := &request.Request{Kind: request.Command, Name: "a", Payload: message.Payload}
	if typ.RefusesCommand(client) == nil || typ.RefusesCommand(message) != nil {
		t.Errorf("a client's: %v, a message's: %v", typ.RefusesCommand(client), typ.RefusesCommand(message))
	}
	if message.Payload = nil; typ.RefusesCommand(message) != nil {
		t.Errorf("a message without a payload: %v", typ.RefusesCommand(message))
	}
}

// TestErrorsSuggestSimilarNames checks that errors suggest a similar name,
// but never a name that clients may not use.
func TestErrorsSuggestSimilarNames(t *testing.T) {
	w := quiet(t)
	w.typ.Commands, w.typ.Queries = map[string]bool{"add": true, "note": true}, map[string]bool{"sum": true}
	w.typ.Internal = map[string]bool{"note": true}
	for name, want := range map[string]string{"ad": `did you mean "add"?`, "nte": ""} {
		if res := w.ask(request.Command, name, "x"+name); !errors.Is(res.Err, request.ErrUnknownCommand) || want == "" && strings.Contains(res.Err.Error(), "mean") || !strings.Contains(res.Err.Error(), want) {
			t.Errorf("%s: %v", name, res.Err)
		}
	}
	if res := w.ask(request.Query, "sun", ""); !errors.Is(res.Err, request.ErrUnknownQuery) || !strings.Contains(res.Err.Error(), `did you mean "sum"?`) {
		t.Errorf("%v", res.Err)
	}
}

// longCheck gives the command "add" of a type a schema with an expensive
// pattern. It returns a payload whose check takes many steps.
func longCheck(t *testing.T, typ *Type) (payload []byte) {
	t.Helper()
	s, err := schema.Compile([]byte(`{"type":"string","pattern":"[a-z]{0,200}!"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	typ.Forms = PayloadForms{Commands: map[string]*schema.Schema{"add": s}}
	return []byte(`"` + strings.Repeat("a", 1000) + `"`)
}

// TestExecutorContinuesDuringLongPayloadCheck checks that the executor
// continues while a long payload check runs as a part of the guest call, and
// that the check ends at the request's deadline.
func TestExecutorContinuesDuringLongPayloadCheck(t *testing.T) {
	typ := &Type{}
	payload, now := longCheck(t, typ), time.Unix(1000, 0)
	for _, late := range []bool{false, true} {
		v := newCall(func() time.Time { return now })
		v.kind, v.guest = callHandle, &adder{}
		v.check = typ.commandCheck(&request.Request{Name: "add", Payload: payload})
		if v.env.Deadline = now.Add(time.Second); late {
			v.env.Deadline = now
		}
		handed := preemptions(0)
		v.Exec(&handed)
		if handed == 0 || v.steps < schema.PauseSteps {
			t.Errorf("late %v: given away %d times in %d steps", late, handed, v.steps)
		}
		_, invalid := errors.AsType[*request.InvalidPayloadError](v.payloadErr)
		if invalid == late || errors.Is(v.payloadErr, request.ErrDeadline) != late {
			t.Errorf("late %v: %v", late, v.payloadErr)
		}
	}
}

// TestPayloadChecksSpendFuel checks that the cost of a check is charged to the
// type's budget, even if the payload is invalid.
func TestPayloadChecksSpendFuel(t *testing.T) {
	w := quiet(t)
	w.tell("a")
	payload := longCheck(t, w.typ)
	w.typ.FuelBudget = NewBudget(1000)
	res := w.submit(&request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "a"}, Name: "add", Payload: payload, ID: "long"})
	var invalid *request.InvalidPayloadError
	if !errors.As(res.Err, &invalid) {
		t.Fatalf("%+v", res)
	}
	var limited *request.RateLimitedError
	if res := w.askOf("b", request.Command, "note", "next"); !errors.As(res.Err, &limited) || limited.Limit != request.LimitFuel {
		t.Errorf("the next command gave %v", res.Err)
	}
}

// TestLinesAboutDeadLettersAreLimited checks that a guest that makes many dead
// letters cannot fill the node's log, and that a later line reports how many
// dead letters were not logged.
func TestLinesAboutDeadLettersAreLimited(t *testing.T) {
	w := quiet(t)
	text, err := schema.Compile([]byte(`{"type":"string"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	w.core.opts.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	lines := func() int { return strings.Count(logged.String(), "becomes a dead letter") }
	w.typ.Forms.Commands = map[string]*schema.Schema{"note": text}
	from, to := sharding.EntityID{Type: "any", ID: "a"}, sharding.EntityID{Type: "tally", ID: "y"}
	w.messages.all[pair{from, to}] = []journal.Message{{Source: from, Destination: to, Number: 1, Command: "note", Payload: []byte("1")}}
	deliver := &request.Request{Kind: request.Deliver, Entity: to, Name: "note", Payload: []byte("1"), ServerID: true, Shard: worldShard,
		ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{Source: from, Number: 1}}
	deliver.ID, deliver.Done = request.SendCommand(from, 1), &asked{}
	w.core.submit(w.now, []*request.Request{deliver})
	w.settleDown()
	if lines() != 1 {
		t.Fatalf("%d lines about one dead letter: %s", lines(), &logged)
	}
	w.core.now = w.core.now.Add(time.Minute)
	e := &entity{id: to, shard: w.core.shards[worldShard]}
	for range 100 {
		w.core.decider.logRefusal(e, deliver, &request.RejectedError{})
	}
	if lines() != 1+refusalLines {
		t.Errorf("%d lines about 100 dead letters at once, want %d", lines()-1, refusalLines)
	}
	w.core.now = w.core.now.Add(time.Minute)
	w.core.decider.logRefusal(e, deliver, &request.RejectedError{})
	if want := fmt.Sprint("unlogged_before=", 100-refusalLines); !strings.Contains(logged.String(), want) {
		t.Errorf("no line has %s: %s", want, &logged)
	}
}

// checks are the settings of a type that set only whether payloads are
// validated.
type checks struct{ on bool }

func (*checks) Values() string            { return "" }
func (c *checks) ValidatesPayloads() bool { return c.on }

// preemptions counts the preemptions of a call.
type preemptions int

func (p *preemptions) Preempt() { *p++ }
