// Package hostdtest runs an entity natively under go test: given events,
// when a command comes, then these events, this reply, this state.
//
//	d := hostdtest.New(t, Counter())
//	d.Given(Added{2})
//	d.When("add", Add{3}).Events(Added{3}).Reply(Total{5})
//	d.Then(State{Total: 5})
//
// Everything goes through the bytes of the ABI, as it does inside a node. And
// after every call the driver checks what a node relies on: the live state,
// a replay of the whole history in other batches, and a state loaded from a
// snapshot must be the same bytes; a rejected command and a query must leave
// the state as it was; the output must keep the limits.
//
// It never starts a goroutine, and a Driver is for one test's goroutine.
package hostdtest

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// handles of the entities a Driver keeps in its guest.
const (
	live     = 0
	replayed = 1
)

// Driver is one entity under test.
type Driver[S any] struct {
	t         testing.TB
	typ       *hostd.Type[S]
	guest     *hostd.Guest
	forms     *forms
	id        string
	history   []stored
	durable   []byte // the stored state of a durable-state type
	version   uint64 // of it, where it is an earlier one
	limits    abi.Limits
	random    *rand.Rand
	now       time.Time
	commandID string
	source    abi.Source
	due       time.Time // of the timer that is the source
	principal []byte    // a frame
	settings  []byte    // the body of a frame
	commands  int
	lines     []string
}

type stored struct {
	typ     string
	payload []byte
}

// New returns a driver of a new entity with id "test". Time starts on 1
// January 2026 and stands still until At moves it.
func New[S any](t testing.TB, typ *hostd.Type[S]) *Driver[S] {
	t.Helper()
	d := &Driver[S]{
		t: t, typ: typ, guest: hostd.NewGuest("test", "", typ), id: "test", limits: abi.DefaultLimits(),
		random: rand.New(rand.NewPCG(1, 2)),
		now:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		source: abi.Source{Kind: abi.SourceClient},
	}
	d.forms = formsOf(t, d.guest)[typ.Name()]
	d.guest.Log = func(_ abi.LogLevel, line string) { d.lines = append(d.lines, line) }
	d.reload(live)
	return d
}

// ID sets the entity's id, and starts it anew.
func (d *Driver[S]) ID(id string) *Driver[S] {
	d.t.Helper()
	if err := abi.ValidateEntityID(id); err != nil {
		d.t.Fatal(err)
	}
	d.id = id
	d.reload(live)
	return d
}

// At sets the time of the commands and queries that follow.
func (d *Driver[S]) At(now time.Time) *Driver[S] {
	d.now = now
	return d
}

// CommandID sets the id of the next command. Without one, ids are "command-1"
// and so on.
func (d *Driver[S]) CommandID(id string) *Driver[S] {
	d.commandID = id
	return d
}

// As makes the commands and queries that follow be a caller's, who is known by
// a kind of credential, such as "token", a name and groups. What other entities
// and timers send has none.
func (d *Driver[S]) As(kind, name string, groups ...string) *Driver[S] {
	d.principal = abi.AppendPrincipal(nil, kind, name, groups...)
	return d
}

// Setting has the commands and queries that follow read a value under a name,
// as operators set it.
func (d *Driver[S]) Setting(name, value string) *Driver[S] {
	var next []byte
	for n, v := range abi.Settings(d.settings) {
		if string(n) != name {
			next = abi.AppendSetting(next, string(n), string(v))
		}
	}
	d.settings = abi.AppendSetting(next, name, value)
	return d
}

// From makes the commands that follow come from another entity.
func (d *Driver[S]) From(entityType, entityID string) *Driver[S] {
	d.due = time.Time{}
	d.source = abi.Source{Kind: abi.SourceEntity, EntityType: []byte(entityType), EntityID: []byte(entityID)}
	return d
}

// FromTimer makes the commands that follow come from a timer.
func (d *Driver[S]) FromTimer() *Driver[S] {
	d.source = abi.Source{Kind: abi.SourceTimer}
	return d
}

// FromTimerDue makes the commands that follow come from a timer that was due
// at a time.
func (d *Driver[S]) FromTimerDue(due time.Time) *Driver[S] {
	d.due = due
	return d.FromTimer()
}

// Given adds events to the entity's history.
func (d *Driver[S]) Given(events ...any) *Driver[S] {
	d.t.Helper()
	for _, event := range events {
		name, payload, err := d.typ.EncodeEvent(event)
		if err != nil {
			d.t.Fatalf("%T: %v", event, err)
		}
		d.history = append(d.history, stored{name, payload})
	}
	d.reload(live)
	return d
}

// GivenState makes the stored state of the type be one of a version: 0 is that
// of the type, another one that it has a MigrateState of. The state is a value
// of the Go type of that version. Of an event-sourced type it is the snapshot
// that the events given after it come behind.
func (d *Driver[S]) GivenState(version int, state any) *Driver[S] {
	d.t.Helper()
	if d.typ.IsTransient() {
		d.t.Fatal("the type stores no state")
	}
	if len(d.history) > 0 && !d.typ.IsDurable() {
		d.t.Fatal("a snapshot comes before the events: give it first")
	}
	d.durable, d.version = append([]byte{}, d.encode(state)...), uint64(version)
	d.reload(live)
	d.compare("the state of version "+strconv.Itoa(version), d.snapshot(live))
	return d
}

// When sends a command. The payload is a value the type's encoding can write,
// []byte or hostd.RawJSON for bytes as they are, or nil for none. An internal
// command of a client is rejected with CodeInternal, a message from a type that
// the entity's does not accept with CodeNotAccepted, and the entity not called.
// A send to a type that its Sends does not name fails the test.
// A payload that does not fit the command's schema is rejected with
// hostd.CodeInvalidPayload and the entity not called: clients get
// invalid_argument then. What is written has to fit its schema too.
func (d *Driver[S]) When(command string, payload any) *Result[S] {
	d.t.Helper()
	d.commands++
	if code, why := d.refusal(command, payload); code != "" {
		return d.refused(command, code, why)
	}
	id := d.commandID
	if d.commandID = ""; id == "" {
		id = "command-" + strconv.Itoa(d.commands)
	}
	before := d.snapshot(live)
	input := d.request(command, payload)
	if d.source.Kind == abi.SourceClient {
		input = append(input, d.principal...)
	}
	input = abi.AppendCommandID(input, id)
	input = abi.AppendSeed(input, uint64(d.commands))
	input = abi.AppendSource(input, d.source)
	if !d.due.IsZero() {
		input = abi.AppendDue(input, d.due.UnixNano())
	}
	mode := abi.HandleEvents
	switch {
	case d.typ.IsTransient():
		mode = abi.HandleTransient
	case d.typ.IsDurable():
		mode = abi.HandleState
	}
	r := d.result(command, d.guest.Handle(live, input), mode)
	for _, s := range r.output.Sends {
		if to := string(s.EntityType); !r.output.Rejected && !d.itself(to, string(s.EntityID)) && !d.typ.SendsTo(to) {
			d.t.Errorf("%s sends to %s, which the type's Sends does not name", command, to)
		}
	}
	d.settle(r, before)
	return r
}

// refused is what the host answers without a call of the entity.
func (d *Driver[S]) refused(name, code, why string) *Result[S] {
	r := &Result[S]{driver: d, t: d.t, name: name}
	r.output.Rejected, r.output.Reject.Code, r.output.Reject.Message = true, []byte(code), []byte(why)
	return r
}

// refusal is the code with which the host refuses a command without a call of
// the entity, and why; or empty.
func (d *Driver[S]) refusal(command string, payload any) (code, why string) {
	from := string(d.source.EntityType)
	switch {
	case d.source.Kind == abi.SourceClient && d.typ.IsInternal(command):
		return CodeInternal, "the command is internal"
	case d.source.Kind == abi.SourceEntity && !d.itself(from, string(d.source.EntityID)) && !d.typ.TakesFrom(from):
		return CodeNotAccepted, "the type takes no messages from the type that sent this one"
	case d.source.Kind == abi.SourceTimer:
		return "", "" // what a timer brings is the entity's own
	}
	if why = d.forms.refuses(d.forms.commands, command, d.encode(payload), d.source.Kind == abi.SourceEntity); why != "" {
		return hostd.CodeInvalidPayload, why
	}
	return "", ""
}

func (d *Driver[S]) itself(entityType, id string) bool {
	return entityType == d.typ.Name() && id == d.id
}

// settle stores what a command did and checks the state it left.
func (d *Driver[S]) settle(r *Result[S], before []byte) {
	d.t.Helper()
	after := d.snapshot(live)
	if !r.output.Rejected {
		for _, event := range r.output.Events {
			wrote(d.t, "event "+string(event.Type), d.forms.occurred[string(event.Type)], event.Payload)
		}
		if len(r.output.Reply) > 0 {
			wrote(d.t, "the reply of "+r.name, d.forms.replies[r.name], r.output.Reply)
		}
		wrote(d.t, "the state after "+r.name, d.forms.state, after)
	}
	switch {
	case r.output.Rejected && len(r.output.Events) > 0:
		d.reload(live) // as a host does: the entity has evolved by events that are not stored
		after = d.snapshot(live)
		fallthrough
	case r.output.Rejected:
		if !bytes.Equal(before, after) {
			d.t.Errorf("%s was rejected and changed the state\nfrom %s\nto   %s", r.name, before, after)
		}
		return
	case d.typ.IsDurable():
		if r.output.HasState {
			d.durable, d.version = bytes.Clone(r.output.State), 0
		}
	}
	if d.typ.IsTransient() {
		return
	}
	for _, event := range r.output.Events {
		d.history = append(d.history, stored{string(event.Type), event.Payload})
	}
	if r.output.Delete {
		d.history, d.durable, d.version = nil, nil, 0
		d.reload(live)
		return
	}
	d.compare(r.name, after)
}

// compare holds the live state to a replay and to its own snapshot.
func (d *Driver[S]) compare(name string, after []byte) {
	d.t.Helper()
	d.reload(replayed)
	if again := d.snapshot(replayed); !bytes.Equal(after, again) {
		d.t.Errorf("after %s the live state is not what its history gives\nlive   %s\nreplay %s", name, after, again)
	}
	d.load(replayed, after, 0)
	if again := d.snapshot(replayed); !bytes.Equal(after, again) {
		d.t.Errorf("after %s a loaded snapshot is not the state it was taken of\ntaken  %s\nloaded %s", name, after, again)
	}
}

// Query asks a query. The payload is as for When.
func (d *Driver[S]) Query(query string, payload any) *Result[S] {
	d.t.Helper()
	if why := d.forms.refuses(d.forms.queries, query, d.encode(payload), false); why != "" {
		return d.refused(query, hostd.CodeInvalidPayload, why)
	}
	before := d.snapshot(live)
	r := d.result(query, d.guest.Query(live, append(d.request(query, payload), d.principal...)), abi.QueryOnly)
	if after := d.snapshot(live); !bytes.Equal(before, after) {
		d.t.Errorf("query %s changed the state\nfrom %s\nto   %s", query, before, after)
	}
	if !r.output.Rejected && len(r.output.Reply) > 0 {
		wrote(d.t, "the reply of "+query, d.forms.answers[query], r.output.Reply)
	}
	return r
}

// State returns the entity's state.
func (d *Driver[S]) State() S {
	d.t.Helper()
	state, err := d.typ.DecodeState(d.snapshot(live))
	if err != nil {
		d.t.Fatal(err)
	}
	return state
}

// Then checks the entity's state.
func (d *Driver[S]) Then(want S) *Driver[S] {
	d.t.Helper()
	if got, want := d.snapshot(live), d.encode(want); !bytes.Equal(got, want) {
		d.t.Errorf("state is %s\nwant     %s", got, want)
	}
	return d
}

// Log returns the lines the entity has logged.
func (d *Driver[S]) Log() []string { return d.lines }
