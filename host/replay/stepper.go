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

// Stepper replays the history of one entity event by event with one module, in
// its own instance and without a node. It can also handle commands on top of
// the history; their events affect only the stepper's state. It belongs to one
// goroutine. The caller must Close it.
type Stepper struct {
	replayer replayer
	walk     walk
	about    manifest.EntityType
	// refuses returns the error with which a node would reject a command.
	refuses func(*request.Request) error
	limits  abi.Limits
	frames  []byte // buffer for a command's frames
}

// StepEvent is an event of a history, or its tombstone, as readers of events
// see it.
type StepEvent struct {
	Sequence   uint64
	RecordedAt int64 // unix nanoseconds
	Type       string
	Payload    []byte
}

// StepCommand is a command to handle on top of a history.
type StepCommand struct {
	Name    string
	Payload []byte
	ID      string
	Now     int64  // unix nanoseconds
	Seed    uint64 // seeds its random numbers
}

// NewStepper returns a Stepper in the initial state. lines receives what the
// guest writes; nil discards it.
func NewStepper(ctx context.Context, m *guest.Module, id sharding.EntityID, limits abi.Limits, lines func(level abi.LogLevel, text []byte)) (*Stepper, error) {
	about, index, ok := m.Manifest().Type(id.Type)
	if !ok {
		return nil, fmt.Errorf("the module does not serve entity type %q", id.Type)
	}
	if about.Kind == manifest.Transient {
		return nil, errors.New("the entity type is transient: there is nothing to replay")
	}
	s := &Stepper{replayer: replayer{module: m, index: uint32(index), states: about.States(), bounds: guest.InstanceOptions{Lines: lines}}, about: *about, limits: limits}
	s.refuses = modules.RefusalsOf(m.Manifest(), about)
	s.walk = walk{id: id, to: &s.replayer, durable: about.Kind == manifest.DurableState}
	if err := s.replayer.start(ctx, id, 0, given{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Begin replaces the state with a state that the module has written, or with a
// state of a durable type, at the given event. version is the version of a
// durable state, as its event says; 0 is the module's own. The error is the
// guest's, if it rejects the state, or a *manifest.UnreadStateError.
func (s *Stepper) Begin(ctx context.Context, sequence uint64, state []byte, version int) error {
	s.walk.at = journal.Sequence(sequence)
	return s.replayer.start(ctx, s.walk.id, s.walk.at, given{append([]byte{}, state...), version})
}

// Close releases the instance.
func (s *Stepper) Close() { s.replayer.close() }

// Step applies the next event.
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

// State returns the state after the last step.
func (s *Stepper) State() ([]byte, error) {
	state, err := s.replayer.snapshot()
	return bytes.Clone(state), err
}

// Command lets the guest handle a command of an anonymous client; internal
// commands are allowed. The decision changes only the stepper's state: nothing
// is sent, and no timer is set. The output is valid until the next call. If a
// node would reject the command before calling the guest, the error is
// request.ErrUnknownCommand or a *request.InvalidPayloadError.
func (s *Stepper) Command(ctx context.Context, c StepCommand) (*abi.Output, error) {
	if s.replayer.guest == nil {
		return nil, guest.ErrInstanceDead
	}
	if err := s.refuses(&request.Request{Name: c.Name, Payload: c.Payload}); err != nil {
		return nil, err
	}
	f := abi.AppendSequence(s.frames[:0], uint64(s.walk.at))
	f = abi.AppendPayload(abi.AppendName(f, c.Name), c.Payload)
	f = abi.AppendSeed(abi.AppendNow(abi.AppendCommandID(f, c.ID), c.Now), c.Seed)
	s.frames = abi.AppendSource(f, abi.Source{Kind: abi.SourceClient})
	raw, err := s.replayer.guest.Handle(handle, s.frames, guest.Env{Now: c.Now, Seed: c.Seed})
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

// Sequence returns the sequence of the last event.
func (s *Stepper) Sequence() uint64 { return uint64(s.walk.at) }
