package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
)

// errUnloadable means that a module does not load a state.
var errUnloadable = errors.New("the module does not load the state")

// Handles of the entity in its two instances.
const (
	live  = 0
	again = 1
)

// entity is one entity of a case, with everything that a node would have stored
// of it. It lives in one instance. Its history is also replayed in a second
// instance, with another clock and other random numbers.
type entity struct {
	id       string
	typ      uint32
	about    *manifest.EntityType
	limits   abi.Limits
	guest    *guest.Instance
	other    *guest.Instance
	random   *rand.Rand // chooses the sizes of batches
	history  []stored   // events since the last tombstone
	state    []byte     // the state of an entity of a durable-state type
	version  uint64     // version of that state; 0 means the module's own
	sequence uint64
	frames   []byte
}

// stored is a stored event.
type stored struct {
	sequence uint64
	at       int64 // unix nanoseconds
	name     string
	payload  []byte
}

// The two instances differ as much as two nodes can.
const (
	otherClock = 1_900_000_000_000_000_000
	otherSeed  = 0x9e3779b97f4a7c15
)

// newEntity creates the two instances of an entity. lines receives the guest's
// log lines from the instance in which the entity lives.
func newEntity(ctx context.Context, m *guest.Module, limits abi.Limits, entityType, id string, lines func(abi.LogLevel, []byte)) (*entity, error) {
	about, index, ok := m.Manifest().Type(entityType)
	if !ok {
		return nil, fmt.Errorf("the module does not serve the type %q", entityType)
	}
	e := &entity{id: id, typ: uint32(index), about: about, limits: limits, random: rand.New(rand.NewPCG(1, 2))}
	var err error
	if e.guest, err = m.InstantiateWith(ctx, guest.InstanceOptions{Lines: lines}); err != nil {
		return nil, err
	}
	if e.other, err = m.InstantiateVaried(ctx, otherClock, otherSeed); err != nil {
		return nil, errors.Join(err, e.guest.Close())
	}
	return e, nil
}

func (e *entity) close() error { return errors.Join(e.guest.Close(), e.other.Close()) }

func (e *entity) transient() bool { return e.about.Kind == manifest.Transient }

func (e *entity) mode() abi.Mode {
	switch e.about.Kind {
	case manifest.Transient:
		return abi.HandleTransient
	case manifest.DurableState:
		return abi.HandleState
	}
	return abi.HandleEvents
}

// load loads a new entity with a state of a version, or without a state.
func (e *entity) load(g *guest.Instance, handle uint64, state []byte, version, sequence uint64) error {
	f := abi.AppendEntityID(e.frames[:0], e.id)
	if state != nil {
		f = abi.AppendSequence(abi.AppendSnapshot(f, state), sequence)
	}
	if version != 0 {
		f = abi.AppendStateVersion(f, version)
	}
	e.frames = f
	status, err := g.Load(e.typ, handle, f)
	if err == nil && status != abi.LoadDone {
		err = fmt.Errorf("%w %s", errUnloadable, show(state))
	}
	return err
}

// replay rebuilds the entity from its stored data, in batches of random sizes.
func (e *entity) replay(g *guest.Instance, handle uint64) error {
	if err := e.load(g, handle, e.state, e.version, e.sequence); err != nil {
		return err
	}
	for left := e.history; len(left) > 0; {
		n := 1 + e.random.IntN(len(left))
		f := e.frames[:0]
		taken := 0
		for _, s := range left[:n] {
			if taken > 0 && len(f)+abi.InputEventBytes(len(s.name), len(s.payload)) > e.limits.BatchBytes {
				break
			}
			f = abi.AppendInputEvent(f, s.sequence, s.at, s.name, s.payload)
			taken++
		}
		e.frames = f
		if err := g.Apply(handle, f); err != nil {
			return fmt.Errorf("events %d to %d: %w", left[0].sequence, left[taken-1].sequence, err)
		}
		left = left[taken:]
	}
	return nil
}

func (e *entity) snapshot(g *guest.Instance, handle uint64) ([]byte, error) {
	state, err := g.Snapshot(handle)
	return bytes.Clone(state), err
}

// renew drops the live entity and rebuilds it from its stored data.
func (e *entity) renew() error {
	if err := e.guest.Drop(live); err != nil {
		return err
	}
	return e.replay(e.guest, live)
}

// purity describes how the state differs from a replay of its history in
// another instance, or from its own snapshot; empty if it does not.
func (e *entity) purity(state []byte) (string, error) {
	if e.transient() {
		return "", nil
	}
	for _, way := range []struct {
		what string
		load func() error
	}{
		{"the state differs from a replay of the events with a different clock, different random numbers and different batches",
			func() error { return e.replay(e.other, again) }},
		{"the state differs from the state that the module loads from its own snapshot", func() error { return e.load(e.other, again, state, 0, e.sequence) }},
	} {
		if err := way.load(); err != nil {
			return "", err
		}
		made, err := e.snapshot(e.other, again)
		if err == nil {
			err = e.other.Drop(again)
		}
		if err != nil {
			return "", err
		}
		if !bytes.Equal(made, state) {
			return way.what + "\n" + differ(state, made, false), nil
		}
	}
	return "", nil
}

// keep stores the decisions of a command.
func (e *entity) keep(out *abi.Output, now int64) error {
	for _, ev := range out.Events {
		e.sequence++
		e.history = append(e.history, stored{e.sequence, now, string(ev.Type), ev.Payload})
	}
	if out.HasState {
		e.sequence++
		e.state, e.version = out.State, 0
	}
	if !out.Delete {
		return nil
	}
	e.history, e.state, e.version = nil, nil, 0
	e.sequence++
	return e.renew()
}
