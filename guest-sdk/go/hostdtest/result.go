package hostdtest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// CodeInternal stands for the host's rejection of an internal command that a
// client sent. No entity returns this code.
const CodeInternal = "INTERNAL_COMMAND"

// CodeNotAccepted is the host's rejection of a message from a type whose
// messages the entity's type does not accept.
const CodeNotAccepted = "not_accepted"

// Result is the outcome of a command or query. Its methods check it and return
// it, so that checks can be chained.
type Result[S any] struct {
	driver *Driver[S]
	t      testing.TB
	name   string
	output abi.Output
}

func (d *Driver[S]) result(name string, frames []byte, mode abi.Mode) *Result[S] {
	d.t.Helper()
	r := &Result[S]{driver: d, t: d.t, name: name}
	if err := abi.ParseOutput(&r.output, bytes.Clone(frames), mode, &d.limits); err != nil {
		d.t.Fatalf("%s: %v", name, err)
	}
	return r
}

// Output returns the emitted output: sends, timers and the rest.
func (r *Result[S]) Output() *abi.Output { return &r.output }

// Events checks that the command was accepted and emitted exactly these events.
func (r *Result[S]) Events(want ...any) *Result[S] {
	r.t.Helper()
	r.requireAccepted()
	if len(r.output.Events) != len(want) {
		r.t.Errorf("%s emitted %d events, want %d: %s", r.name, len(r.output.Events), len(want), r.list())
		return r
	}
	for i, event := range r.output.Events {
		name, payload, err := r.driver.typ.EncodeEvent(want[i])
		if err != nil {
			r.t.Fatalf("%T: %v", want[i], err)
		}
		if name != string(event.Type) || !bytes.Equal(payload, event.Payload) {
			r.t.Errorf("%s: event %d is %s %s, want %s %s", r.name, i+1, event.Type, event.Payload, name, payload)
		}
	}
	return r
}

// Sends checks that the command was accepted and made exactly these sends, in
// order.
func (r *Result[S]) Sends(want ...Send) *Result[S] {
	r.t.Helper()
	r.requireAccepted()
	if len(r.output.Sends) != len(want) {
		r.t.Errorf("%s made %d sends, want %d", r.name, len(r.output.Sends), len(want))
		return r
	}
	for i, s := range r.output.Sends {
		x := want[i]
		got := Send{string(s.EntityType), string(s.EntityID), string(s.Command), string(s.Payload), hostd.Answer{OnReply: string(s.OnReply), OnReject: string(s.OnReject)}}
		if x.Payload = string(r.driver.encode(want[i].Payload)); got != x {
			r.t.Errorf("%s: send %d is %v, want %v", r.name, i+1, got, x)
		}
	}
	return r
}

// Send is a send of a command. The payload is as for Driver.When.
type Send struct {
	EntityType, EntityID, Command string
	Payload                       any
	Answer                        hostd.Answer
}

func (r *Result[S]) list() string {
	var text []byte
	for _, event := range r.output.Events {
		text = append(text, '\n')
		text = append(text, event.Type...)
		text = append(text, ' ')
		text = append(text, event.Payload...)
	}
	return string(text)
}

// Reply checks that the command or query was accepted with this reply, a value
// or bytes as for Driver.When.
func (r *Result[S]) Reply(want any) *Result[S] {
	r.t.Helper()
	r.requireAccepted()
	if want := r.driver.encode(want); !bytes.Equal(r.output.Reply, want) {
		r.t.Errorf("%s replied %s, want %s", r.name, r.output.Reply, want)
	}
	return r
}

// Rejected checks that the command or query was rejected with this code.
func (r *Result[S]) Rejected(code string) *Result[S] {
	r.t.Helper()
	switch {
	case !r.output.Rejected:
		r.t.Errorf("%s was accepted, want it rejected with %s", r.name, code)
	case string(r.output.Reject.Code) != code:
		r.t.Errorf("%s was rejected with %s (%s), want %s", r.name, r.output.Reject.Code, r.output.Reject.Message, code)
	}
	return r
}

// Tags checks the tags of one event, counted from 1.
func (r *Result[S]) Tags(event int, want ...string) *Result[S] {
	r.t.Helper()
	if event < 1 || event > len(r.output.Events) {
		r.t.Errorf("%s emitted %d events, there is no event %d", r.name, len(r.output.Events), event)
		return r
	}
	var got []string
	for _, tag := range r.output.Events[event-1].Tags {
		got = append(got, string(tag))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: event %d has the tags %q, want %q", r.name, event, got, want)
	}
	return r
}

func (r *Result[S]) requireAccepted() {
	r.t.Helper()
	if r.output.Rejected {
		r.t.Errorf("%s was rejected with %s: %s", r.name, r.output.Reject.Code, r.output.Reject.Message)
	}
}
