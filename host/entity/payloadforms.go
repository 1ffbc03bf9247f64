package entity

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TypeInputs are the commands and queries of a type and the settings that its
// guests get.
type TypeInputs struct {
	// Commands and Queries are the allowed names. If nil, the guest decides.
	Commands, Queries map[string]bool
	Forms             PayloadForms
	Settings          inputSettings // nil means no settings; payloads are then checked
}

// inputSettings provides the settings of a type for its guests. No method may
// block.
type inputSettings interface {
	// Values returns the settings as the content of a frame.
	Values() string
	// ValidatesPayloads reports whether payloads are checked.
	ValidatesPayloads() bool
}

// PayloadForms are the schemas of the payloads of a type's commands and
// queries, by name. A name without an entry has no schema.
type PayloadForms struct {
	Commands, Queries map[string]*schema.Schema
}

// RefusesCommand returns an error if the type has no command of that name or
// the payload does not match the schema. The check may take long, so executors
// call refusesCommandName instead, and check the payload as a part of the guest
// call.
func (t *Type) RefusesCommand(r *request.Request) error {
	if err := t.refusesCommandName(r); err != nil {
		return err
	}
	_, err := t.commandCheck(r).Do(nil)
	return err
}

// refusesCommandName returns an error if the type has no command of that name.
// The error suggests a similar name.
func (t *Type) refusesCommandName(r *request.Request) error {
	if t.hasCommand(r.Name) {
		return nil
	}
	return suggestName(request.ErrUnknownCommand, r.Name, t.Commands, t.Internal)
}

// refusesQueryName returns an error if the type has no query of that name.
func (t *Type) refusesQueryName(r *request.Request) error {
	if t.hasQuery(r.Name) {
		return nil
	}
	return suggestName(request.ErrUnknownQuery, r.Name, t.Queries, nil)
}

// payloadCheck is a payload and its schema. The zero value always passes.
type payloadCheck struct {
	schema  *schema.Schema
	payload []byte
	open    bool
}

// checkStepFuel is the cost of one step of a check in fuel: 20 ns.
const checkStepFuel = 100

// commandCheck returns the check of a command's payload.
func (t *Type) commandCheck(r *request.Request) payloadCheck {
	// The sender of a message may be a newer module than this one.
	return t.check(t.Forms.Commands[r.Name], r.Payload, r.Delivery != nil)
}

// queryCheck returns the check of a query's payload.
func (t *Type) queryCheck(r *request.Request) payloadCheck {
	return t.check(t.Forms.Queries[r.Name], r.Payload, false)
}

// nullPayload replaces an empty payload, which a message may have.
var nullPayload = []byte("null")

func (in *TypeInputs) check(s *schema.Schema, payload []byte, open bool) payloadCheck {
	if s == nil || in.Settings != nil && !in.Settings.ValidatesPayloads() {
		return payloadCheck{}
	}
	if len(payload) == 0 {
		payload = nullPayload
	}
	return payloadCheck{s, payload, open}
}

// Do checks the payload and returns the number of steps. The error is a
// *request.InvalidPayloadError, or request.ErrDeadline if pause ended the
// check. pause is called every schema.PauseSteps steps, and may be nil.
func (c payloadCheck) Do(pause func() bool) (steps int, err error) {
	if c.schema == nil {
		return 0, nil
	}
	violations, steps, err := c.schema.CheckWith(c.payload, schema.Options{Open: c.open, Pause: pause})
	switch {
	case err != nil:
		return steps, request.ErrDeadline
	case violations == nil:
		return steps, nil
	}
	out := &request.InvalidPayloadError{}
	for _, v := range violations {
		out.Violations = append(out.Violations, request.Violation(v))
	}
	return steps, out
}

// suggestName returns err with the name that was probably meant. It never suggests
// a hidden name.
func suggestName(err error, name string, names, hidden map[string]bool) error {
	open := func(yield func(string) bool) {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !hidden[name] && !yield(name) {
				return
			}
		}
	}
	if nearest, found := schema.Nearest(name, open); found {
		return fmt.Errorf("%w; did you mean %q?", err, nearest)
	}
	return err
}

// refusesMessage returns the rejection that the source gets if the type does
// not accept the message, or nil if it does. It does not check the payload.
func (t *Type) refusesMessage(to sharding.EntityID, r *request.Request) *request.RejectedError {
	switch {
	case !r.Delivery.Answer && !t.accepts(to, r.Delivery.Source): // an answer that the entity has asked for is always accepted
		return &request.RejectedError{Code: request.CodeNotAccepted, Message: "the entity type does not accept messages from the sender's type"}
	case !t.hasCommand(r.Name):
		return &request.RejectedError{Code: request.CodeNotFound, Message: "the entity type has no such command"}
	}
	return nil
}
