package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Stepper folds the history of one entity event by event, without a node, as
// Verify does: with one module, in an instance of its own. It may take commands
// on top of that, whose events stay in it. It is for one goroutine; Close ends
// it.
type Stepper struct {
	fold  fold
	walk  walk
	about manifest.EntityType
	// refuses says why a node would not give a command to the guest.
	refuses func(*request.Request) error
	limits  abi.Limits
	frames  []byte // of a command
}

// StepEvent is an event of a history, or the end of a life, as readers of
// events see it.
type StepEvent struct {
	Sequence   uint64
	RecordedAt int64 // unix nanoseconds
	Type       string
	Payload    []byte
}

// StepCommand is a command on top of a history.
type StepCommand struct {
	Name    string
	Payload []byte
	ID      string
	Now     int64  // unix nanoseconds
	Seed    uint64 // of its random numbers
}

// NewStepper begins with the initial state. lines is told what the guest
// writes; nil: nobody is.
func NewStepper(ctx context.Context, m *guest.Module, id sharding.EntityID, limits abi.Limits, lines func(level abi.LogLevel, text []byte)) (*Stepper, error) {
	about, index, ok := m.Manifest().Type(id.Type)
	if !ok {
		return nil, fmt.Errorf("the module does not serve entity type %q", id.Type)
	}
	if about.Kind == manifest.Transient {
		return nil, errors.New("the entities of this type keep no state: there is nothing to fold")
	}
	s := &Stepper{fold: fold{module: m, index: uint32(index), states: about.States(), bounds: guest.InstanceOptions{Lines: lines}}, about: *about, limits: limits}
	s.refuses = modules.RefusalsOf(m.Manifest(), about)
	s.walk = walk{id: id, to: &s.fold, durable: about.Kind == manifest.DurableState}
	if err := s.fold.start(ctx, id, 0, given{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Begin has it go on from a state that the module has made, or that a durable
// type was in, at an event. version is that of a durable state, as its event
// says; 0 is the module's own. The error is that of the guest, which may not
// take it, or a *manifest.UnreadStateError.
func (s *Stepper) Begin(ctx context.Context, sequence uint64, state []byte, version int) error {
	s.walk.at = journal.Sequence(sequence)
	return s.fold.start(ctx, s.walk.id, s.walk.at, given{append([]byte{}, state...), version})
}

// Close ends it.
func (s *Stepper) Close() { s.fold.close() }

// Step folds the next event.
func (s *Stepper) Step(ctx context.Context, e StepEvent) error {
	if journal.Sequence(e.Sequence) != s.walk.at+1 {
		return fmt.Errorf("%w: event %d follows event %d", journal.ErrDamaged, e.Sequence, s.walk.at)
	}
	if e.Type == journal.TombstoneEvent {
		return s.walk.endLife(ctx, s.walk.at+1)
	}
	if err := s.walk.take(ctx, event{journal.Sequence(e.Sequence), e.RecordedAt, e.Type, e.Payload}); err != nil {
		return err
	}
	return s.walk.settle(ctx)
}

// State is the state after the last step.
func (s *Stepper) State() ([]byte, error) {
	state, err := s.fold.snapshot()
	return bytes.Clone(state), err
}

// Command gives the guest a command of a client of whom nothing is known, also
// one that clients may not send. What it decides is in the state from then on,
// and nowhere else: nothing is sent, and no timer is set. The output is valid
// until the next call. A command that a node would not give to the guest is
// refused: request.ErrUnknownCommand, or a *request.InvalidPayloadError.
func (s *Stepper) Command(ctx context.Context, c StepCommand) (*abi.Output, error) {
	if s.fold.guest == nil {
		return nil, guest.ErrInstanceDead
	}
	if err := s.refuses(&request.Request{Name: c.Name, Payload: c.Payload}); err != nil {
		return nil, err
	}
	f := abi.AppendSequence(s.frames[:0], uint64(s.walk.at))
	f = abi.AppendPayload(abi.AppendName(f, c.Name), c.Payload)
	f = abi.AppendSeed(abi.AppendNow(abi.AppendCommandID(f, c.ID), c.Now), c.Seed)
	s.frames = abi.AppendSource(f, abi.Source{Kind: abi.SourceClient})
	raw, err := s.fold.guest.Handle(handle, s.frames, guest.Env{Now: c.Now, Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	mode := abi.HandleEvents
	if s.about.Kind == manifest.DurableState {
		mode = abi.HandleState
	}
	out := &abi.Output{}
	if err := abi.ParseOutput(out, bytes.Clone(raw), mode, &s.limits); err != nil {
		return nil, err
	}
	if out.Rejected {
		return out, nil
	}
	s.walk.at += journal.Sequence(len(out.Events))
	if out.HasState {
		s.walk.at++
	}
	if out.Delete {
		return out, s.walk.endLife(ctx, s.walk.at+1)
	}
	return out, nil
}

// Sequence is that of the last event.
func (s *Stepper) Sequence() uint64 { return uint64(s.walk.at) }
