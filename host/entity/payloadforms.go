package entity

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TypeInputs are what a type may be asked, and what it is told with that.
type TypeInputs struct {
	// Commands and Queries are the listed names; nil lets the guest decide.
	Commands, Queries map[string]bool
	Forms             PayloadForms
	// Settings are the values that operators have set for the type, as a frame
	// has them; nil has none. It is called by executors and must not block.
	Settings func() string
}

// PayloadForms are the schemas of the payloads of a type's commands and queries, of
// those that have one.
type PayloadForms struct {
	Commands, Queries map[string]*schema.Schema
	// Checked reports that payloads are held to them; nil always does.
	Checked func() bool
}

// RefusesCommand says why the type does not take a command: it has none of that
// name, or the payload does not fit. It takes as long as the check does, so
// executors call RefusesCommandName, and Check in a guest call.
func (t *Type) RefusesCommand(r *request.Request) error {
	if err := t.RefusesCommandName(r); err != nil {
		return err
	}
	_, err := t.CommandCheck(r).Do(nil)
	return err
}

// RefusesCommandName returns an error if the type has no command of that name.
// It suggests a similar one.
func (t *Type) RefusesCommandName(r *request.Request) error {
	if t.HasCommand(r.Name) {
		return nil
	}
	return misspelt(request.ErrUnknownCommand, r.Name, t.Commands, t.Internal)
}

// RefusesQueryName returns an error if the type has no query of that name.
func (t *Type) RefusesQueryName(r *request.Request) error {
	if t.HasQuery(r.Name) {
		return nil
	}
	return misspelt(request.ErrUnknownQuery, r.Name, t.Queries, nil)
}

// payloadCheck is a payload with the schema that it has to fit. The zero Check passes.
type payloadCheck struct {
	schema  *schema.Schema
	payload []byte
	open    bool
}

// checkStepFuel is what a step of a check costs, in fuel: 20 ns.
const checkStepFuel = 100

// CommandCheck returns the check of a command's payload.
func (t *Type) CommandCheck(r *request.Request) payloadCheck {
	// Another module has written a message, which may be newer than this one.
	return t.Forms.check(t.Forms.Commands[r.Name], r.Payload, r.Delivery != nil)
}

// QueryCheck returns the check of a query's payload.
func (t *Type) QueryCheck(r *request.Request) payloadCheck {
	return t.Forms.check(t.Forms.Queries[r.Name], r.Payload, false)
}

// none is what a payload of no bytes stands for: that of a message may be.
var none = []byte("null")

func (f *PayloadForms) check(s *schema.Schema, payload []byte, open bool) payloadCheck {
	if s == nil || f.Checked != nil && !f.Checked() {
		return payloadCheck{}
	}
	if len(payload) == 0 {
		payload = none
	}
	return payloadCheck{s, payload, open}
}

// Do checks the payload, and returns how many steps it has taken. The error is
// a *request.InvalidPayloadError, or request.ErrDeadline if pause, which is
// called each schema.PauseSteps, has ended the check.
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

// misspelt is err with the name that was probably meant, which is none of
// those that clients cannot use.
func misspelt(err error, name string, names, hidden map[string]bool) error {
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

// RefusesMessage says why the type does not take a message from another entity,
// as its source is told, before the payload is checked; nil when it does.
func (t *Type) RefusesMessage(to sharding.EntityID, r *request.Request) *request.RejectedError {
	switch {
	case !r.Delivery.Answer && !t.Accepts(to, r.Delivery.Source): // the entity has asked for an outcome
		return &request.RejectedError{Code: request.CodeNotAccepted, Message: "the entity type takes no messages from the type that sent this one"}
	case !t.HasCommand(r.Name):
		return &request.RejectedError{Code: request.CodeNotFound, Message: "the entity type has no such command"}
	}
	return nil
}
