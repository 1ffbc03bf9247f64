package binding

import (
	"errors"
	"fmt"
	"maps"

	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// Inputs are what a type may be asked, and what it is told with that.
type Inputs struct {
	// Commands and Queries are the listed names; nil lets the guest decide.
	Commands, Queries map[string]bool
	Forms             Forms
	// Settings are the values that operators have set for the type, as a frame
	// has them; nil has none. It is called by lanes and must not block.
	Settings func() string
}

// Forms are the schemas of the payloads of a type's commands and queries, of
// those that have one.
type Forms struct {
	Commands, Queries map[string]*schema.Schema
	// Checked reports that payloads are held to them; nil always does.
	Checked func() bool
}

// RefusesCommand says why the type does not take a command: it has none of that
// name, or the payload does not fit. A name that is near is told.
func (t *Type) RefusesCommand(r *request.Request) error {
	if !t.HasCommand(r.Name) {
		return misspelt(request.ErrUnknownCommand, r.Name, t.Commands, t.Internal)
	}
	// Another module has written a message, which may be newer than this one.
	return t.Forms.refuses(t.Forms.Commands[r.Name], r.Payload, r.Delivery != nil)
}

// RefusesQuery says why the type does not answer a query.
func (t *Type) RefusesQuery(r *request.Request) error {
	if !t.HasQuery(r.Name) {
		return misspelt(request.ErrUnknownQuery, r.Name, t.Queries, nil)
	}
	return t.Forms.refuses(t.Forms.Queries[r.Name], r.Payload, false)
}

// none is what a payload of no bytes stands for: that of a message may be.
var none = []byte("null")

func (f *Forms) refuses(s *schema.Schema, payload []byte, open bool) error {
	if s == nil || f.Checked != nil && !f.Checked() {
		return nil
	}
	if len(payload) == 0 {
		payload = none
	}
	check := s.Check
	if open {
		check = s.CheckOpen
	}
	violations := check(payload)
	if violations == nil {
		return nil
	}
	out := &request.InvalidPayloadError{}
	for _, v := range violations {
		out.Violations = append(out.Violations, request.Violation(v))
	}
	return out
}

// misspelt is err with the name that was probably meant, which is none of
// those that clients cannot use.
func misspelt(err error, name string, names, hidden map[string]bool) error {
	open := maps.Clone(names)
	maps.DeleteFunc(open, func(name string, _ bool) bool { return hidden[name] })
	if nearest, found := schema.Nearest(name, maps.Keys(open)); found {
		return fmt.Errorf("%w; did you mean %q?", err, nearest)
	}
	return err
}

// RefusesMessage says why the type does not take a message from another entity,
// as its source is told; nil when it does.
func (t *Type) RefusesMessage(to sharding.EntityID, r *request.Request) *request.RejectedError {
	switch {
	case !t.Accepts(to, r.Delivery.Source):
		return &request.RejectedError{Code: request.CodeNotAccepted, Message: "the entity type takes no messages from the type that sent this one"}
	case !t.HasCommand(r.Name):
		return &request.RejectedError{Code: request.CodeNotFound, Message: "the entity type has no such command"}
	}
	if payload, is := errors.AsType[*request.InvalidPayloadError](t.RefusesCommand(r)); is {
		return payload.Rejection()
	}
	return nil
}
