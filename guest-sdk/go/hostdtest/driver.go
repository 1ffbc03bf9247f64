// Package hostdtest runs an entity natively under go test: given these events,
// when this command arrives, then expect these events, this reply and this
// state.
//
//	d := hostdtest.New(t, Counter())
//	d.Given(Added{2})
//	d.When("add", Add{3}).Events(Added{3}).Reply(Total{5})
//	d.Then(State{Total: 5})
//
// Everything goes through the bytes of the ABI, as it does inside a node. After
// every call the driver also checks the properties on which a node relies: the
// live state, a replay of the whole history in different batches, and a state
// loaded from a snapshot must have the same bytes; a rejected command and a
// query must not change the state; and the output must respect the limits.
//
// It never starts a goroutine. A Driver is for the goroutine of one test.
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

// Handles of the entities that a Driver keeps in its guest.
const (
	live     = 0
	replayed = 1
)

// Driver runs one entity under test.
type Driver[S any] struct {
	t         testing.TB
	typ       *hostd.Type[S]
	guest     *hostd.Guest
	forms     *forms
	id        string
	history   []stored
	durable   []byte // the stored state of a durable-state type
	version   uint64 // version of durable, if it is not the current one
	limits    abi.Limits
	random    *rand.Rand
	now       time.Time
	commandID string
	source    abi.Source
	due       time.Time // due time of the timer that is the source
	principal []byte    // the principal frame
	settings  []byte    // the body of the settings frame
	commands  int
	lines     []string
}

type stored struct {
	typ     string
	payload []byte
}

// New returns a driver of a new entity with the id "test". The time is 1
// January 2026 until At changes it.
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

// ID sets the entity's id and resets the entity.
func (d *Driver[S]) ID(id string) *Driver[S] {
	d.t.Helper()
	if err := abi.ValidateEntityID(id); err != nil {
		d.t.Fatal(err)
	}
	d.id = id
	d.reload(live)
	return d
}

// At sets the time of the following commands and queries.
func (d *Driver[S]) At(now time.Time) *Driver[S] {
	d.now = now
	return d
}

// CommandID sets the id of the next command. By default, ids are "command-1"
// and so on.
func (d *Driver[S]) CommandID(id string) *Driver[S] {
	d.commandID = id
	return d
}

// As sets the caller of the following commands and queries: a kind of
// credential, such as "token", a name and groups. Commands from other entities
// and timers have no caller.
func (d *Driver[S]) As(kind, name string, groups ...string) *Driver[S] {
	d.principal = abi.AppendPrincipal(nil, kind, name, groups...)
	return d
}

// Setting sets a value that the following commands and queries read under the
// given name, as if an operator had set it.
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

// From makes the following commands come from another entity.
func (d *Driver[S]) From(entityType, entityID string) *Driver[S] {
	d.due = time.Time{}
	d.source = abi.Source{Kind: abi.SourceEntity, EntityType: []byte(entityType), EntityID: []byte(entityID)}
	return d
}

// FromTimer makes the following commands come from a timer.
func (d *Driver[S]) FromTimer() *Driver[S] {
	d.source = abi.Source{Kind: abi.SourceTimer}
	return d
}

// FromTimerDue makes the following commands come from a timer that was due at a
// given time.
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

// GivenState sets the stored state of the entity, in a given version. Version 0
// is the current version; other versions need a MigrateState. The state is a
// value of the Go type of that version. For an event-sourced type, it is the
// snapshot that precedes the events that are given next.
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

// When sends a command. The payload is a value that the type's encoding can
// encode, []byte or hostd.RawJSON for verbatim bytes, or nil for no payload.
//
// Like a host, When rejects some commands without calling the entity: an
// internal command from a client with CodeInternal, a message from a type that
// AcceptsFrom does not list with CodeNotAccepted, and a payload that does not
// match the command's schema with hostd.CodeInvalidPayload (a node returns
// invalid_argument to clients). A send to a type that Sends does not list fails
// the test. So does a reply or an event that does not match its schema.
func (d *Driver[S]) When(command string, payload any) *Result[S] {
	d.t.Helper()
	d.commands++
	if code, why := d.refusal(command, payload); code != "" {
		return d.rejectionResult(command, code, why)
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

// rejectionResult returns the result of a command that the host rejects without calling
// the entity.
func (d *Driver[S]) rejectionResult(name, code, why string) *Result[S] {
	r := &Result[S]{driver: d, t: d.t, name: name}
	r.output.Rejected, r.output.Reject.Code, r.output.Reject.Message = true, []byte(code), []byte(why)
	return r
}

// refusal returns the code and the reason with which the host rejects a command
// without calling the entity. Both are empty if the host does not reject it.
func (d *Driver[S]) refusal(command string, payload any) (code, why string) {
	from := string(d.source.EntityType)
	switch {
	case d.source.Kind == abi.SourceClient && d.typ.IsInternal(command):
		return CodeInternal, "the command is internal"
	case d.source.Kind == abi.SourceEntity && !d.itself(from, string(d.source.EntityID)) && !d.typ.TakesFrom(from):
		return CodeNotAccepted, "the type takes no messages from the type that sent this one"
	case d.source.Kind == abi.SourceTimer:
		return "", "" // the entity itself has set the timer
	}
	if why = d.forms.refusal(d.forms.commands, command, d.encode(payload), d.source.Kind == abi.SourceEntity); why != "" {
		return hostd.CodeInvalidPayload, why
	}
	return "", ""
}

func (d *Driver[S]) itself(entityType, id string) bool {
	return entityType == d.typ.Name() && id == d.id
}

// settle stores the effects of a command and checks the resulting state.
func (d *Driver[S]) settle(r *Result[S], before []byte) {
	d.t.Helper()
	after := d.snapshot(live)
	if !r.output.Rejected {
		for _, event := range r.output.Events {
			requireSchema(d.t, "event "+string(event.Type), d.forms.events[string(event.Type)], event.Payload)
		}
		if len(r.output.Reply) > 0 {
			requireSchema(d.t, "the reply of "+r.name, d.forms.replies[r.name], r.output.Reply)
		}
		requireSchema(d.t, "the state after "+r.name, d.forms.state, after)
	}
	switch {
	case r.output.Rejected && len(r.output.Events) > 0:
		d.reload(live) // a host reloads the entity here, too, because the state includes events that are not stored
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

// compare compares the live state with a replay and with its own snapshot.
func (d *Driver[S]) compare(name string, after []byte) {
	d.t.Helper()
	d.reload(replayed)
	if again := d.snapshot(replayed); !bytes.Equal(after, again) {
		d.t.Errorf("after %s, the live state differs from a replay of the history\nlive   %s\nreplay %s", name, after, again)
	}
	if d.typ.IsWorkflow() {
		return // runs have no snapshots
	}
	d.load(replayed, after, 0)
	if again := d.snapshot(replayed); !bytes.Equal(after, again) {
		d.t.Errorf("after %s, the state loaded from a snapshot differs from the live state\ntaken  %s\nloaded %s", name, after, again)
	}
}

// Query runs a query. The payload is as for When.
func (d *Driver[S]) Query(query string, payload any) *Result[S] {
	d.t.Helper()
	if why := d.forms.refusal(d.forms.queries, query, d.encode(payload), false); why != "" {
		return d.rejectionResult(query, hostd.CodeInvalidPayload, why)
	}
	before := d.snapshot(live)
	r := d.result(query, d.guest.Query(live, append(d.request(query, payload), d.principal...)), abi.QueryOnly)
	if after := d.snapshot(live); !bytes.Equal(before, after) {
		d.t.Errorf("query %s changed the state\nfrom %s\nto   %s", query, before, after)
	}
	if !r.output.Rejected && len(r.output.Reply) > 0 {
		requireSchema(d.t, "the reply of "+query, d.forms.answers[query], r.output.Reply)
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

// Log returns the lines that the entity has logged.
func (d *Driver[S]) Log() []string { return d.lines }
