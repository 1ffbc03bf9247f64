package abitest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

// start is the time of the first command; each later command is a second later.
const start = 1_767_225_600_000_000_000 // 1 January 2026

// typeSuite runs the checks of one entity type.
type typeSuite struct {
	*suite
	typ     uint32
	def     *manifest.EntityType
	history []*entity                 // made by the handle check
	forms   map[string]*schema.Schema // schemas of payloads, by command or query
	// outcomes are the commands that may only be sent to entities that have
	// requested them.
	outcomes map[string]bool
}

// entity is an entity of the suite, with everything that a node would have
// stored for it.
type entity struct {
	id       string
	handle   uint64
	sequence uint64
	events   []event // since the last tombstone
	state    []byte  // durable-state: the last stored state
	commands int
	marks    []mark
	asked    []asked // commands to deliver to the entity
}

type event struct {
	sequence uint64
	at       int64
	typ      string
	payload  []byte
}

// mark is the live state after a number of events.
type mark struct {
	events   int
	state    []byte
	snapshot []byte
}

func (t *typeSuite) durable() bool { return t.def.Kind == manifest.DurableState }

// transient reports whether the type stores nothing, so that there is nothing
// to replay.
func (t *typeSuite) transient() bool { return t.def.Kind == manifest.Transient }

func (t *typeSuite) mode() abi.Mode {
	switch {
	case t.transient():
		return abi.HandleTransient
	case t.durable():
		return abi.HandleState
	}
	return abi.HandleEvents
}

func (e *entity) now() int64 { return start + int64(e.commands)*1_000_000_000 }

// load loads the entity as of a mark into the instance: from its events, in
// batches of random sizes, or from a snapshot.
func (t *typeSuite) load(g Instance, e *entity, handle uint64, at mark, random *rand.Rand) error {
	input := abi.AppendEntityID(nil, e.id)
	if at.state != nil {
		input = abi.AppendSnapshot(input, at.state)
		input = abi.AppendSequence(input, e.sequence)
	}
	if err := t.mustLoad(g, handle, input); err != nil {
		return err
	}
	return t.apply(g, handle, e.events[:at.events], random)
}

func (t *typeSuite) mustLoad(g Instance, handle uint64, input []byte) error {
	status, err := g.Load(t.typ, handle, input)
	if err == nil && status != abi.LoadDone {
		err = fmt.Errorf("%s answers %d, want 0", abi.ExportLoad, status)
	}
	return err
}

// apply applies events in batches of random sizes within the limit.
func (t *typeSuite) apply(g Instance, handle uint64, events []event, random *rand.Rand) error {
	for len(events) > 0 {
		want := 1 + random.IntN(len(events))
		var batch []byte
		count := 0
		for count < want {
			e := events[count]
			if count > 0 && len(batch)+abi.InputEventBytes(len(e.typ), len(e.payload)) > t.options.Limits.BatchBytes {
				break
			}
			batch = abi.AppendInputEvent(batch, e.sequence, e.at, e.typ, e.payload)
			count++
		}
		if err := g.Apply(handle, batch); err != nil {
			return err
		}
		events = events[count:]
	}
	return nil
}

func (t *typeSuite) snapshot(g Instance, handle uint64) ([]byte, error) {
	state, err := g.Snapshot(handle)
	if err != nil {
		return nil, err
	}
	if len(state) > t.options.Limits.SnapshotBytes {
		return nil, fmt.Errorf("the snapshot has %d bytes, limit %d", len(state), t.options.Limits.SnapshotBytes)
	}
	return append([]byte{}, state...), nil
}

// command sends one command and stores what a node would store. It checks the
// output, and that a rejection has no effect.
func (t *typeSuite) command(g Instance, e *entity, a asked, random *rand.Rand) error {
	name, payload := a.command, a.payload
	before, err := t.snapshot(g, e.handle)
	if err != nil {
		return err
	}
	out, err := t.send(g, e, a, nil, random)
	switch {
	case err != nil:
		return fmt.Errorf("command %s with payload %.100q: %w", name, payload, err)
	case out.Rejected:
		return t.checkRejection(g, e, name, out, before, random)
	}
	if err := t.store(g, e, name, out, before, random); err != nil {
		return err
	}
	t.recordSends(e, out, random)
	return nil
}

// send calls hostd_handle with the frames of a command, preceded by first.
func (t *typeSuite) send(g Instance, e *entity, a asked, first []byte, random *rand.Rand) (*abi.Output, error) {
	e.commands++
	env := Env{Now: e.now(), Seed: random.Uint64()}
	input := abi.AppendSequence(first, e.sequence)
	input = abi.AppendName(input, a.command)
	input = abi.AppendPayload(input, a.payload)
	input = abi.AppendCommandID(input, fmt.Sprintf("%s-%d", e.id, e.commands))
	input = abi.AppendNow(input, env.Now)
	input = abi.AppendSeed(input, env.Seed)
	input = abi.AppendSource(input, a.source)
	if len(a.token) > 0 {
		input = abi.AppendToken(input, a.token)
	}
	frames, err := g.Handle(e.handle, input, env)
	if err != nil {
		return nil, err
	}
	out := new(abi.Output)
	return out, abi.ParseOutput(out, bytes.Clone(frames), t.mode(), &t.options.Limits)
}

func (t *typeSuite) checkRejection(g Instance, e *entity, name string, out *abi.Output, before []byte, random *rand.Rand) error {
	if len(out.Events) > 0 || out.HasState { // the live state includes events that aren't stored: a host reloads it
		if err := g.Drop(e.handle); err != nil {
			return err
		}
		if err := t.load(g, e, e.handle, mark{events: len(e.events), state: e.state}, random); err != nil {
			return err
		}
	}
	after, err := t.snapshot(g, e.handle)
	if err != nil {
		return err
	}
	return same("command "+name+" was rejected; the state before and after", before, after)
}

func (t *typeSuite) store(g Instance, e *entity, name string, out *abi.Output, before []byte, random *rand.Rand) error {
	for _, emitted := range out.Events {
		e.sequence++
		if err := t.checkDeclared(name, emitted.Type); err != nil {
			return err
		}
		e.events = append(e.events, event{e.sequence, e.now(), string(emitted.Type), emitted.Payload})
	}
	for i := range out.Sends {
		to := &out.Sends[i]
		itself := string(to.EntityType) == t.def.Name && string(to.EntityID) == e.id
		if !itself && !abi.MatchesType(t.def.Sends, to.EntityType) {
			return fmt.Errorf("command %s sends to type %s, which the manifest does not name in sends", name, to.EntityType)
		}
	}
	after, err := t.snapshot(g, e.handle)
	if err != nil || t.transient() {
		return err
	}
	changed := len(out.Events) > 0 || out.HasState
	if !changed {
		err = same("command "+name+" emitted nothing; the state before and after", before, after)
	}
	if out.HasState {
		e.state = out.State
		err = same("the state command "+name+" stores and the snapshot", out.State, after)
	}
	if err != nil {
		return err
	}
	e.marks = append(e.marks, mark{len(e.events), e.state, after})
	if out.Delete {
		return t.restart(g, e, random)
	}
	return nil
}

// checkDeclared checks an event against the manifest's list of events, if there is
// one.
func (t *typeSuite) checkDeclared(command string, typ []byte) error {
	if t.def.Events == nil {
		return nil
	}
	for i := range t.def.Events {
		if t.def.Events[i].Type == string(typ) {
			return nil
		}
	}
	return fmt.Errorf("command %s emitted an event of type %.100q, which the manifest does not list", command, typ)
}

// restart starts the entity's next incarnation after its tombstone.
func (t *typeSuite) restart(g Instance, e *entity, random *rand.Rand) error {
	e.events, e.state, e.marks, e.asked = nil, nil, nil, nil
	e.sequence++
	if err := g.Drop(e.handle); err != nil {
		return err
	}
	return t.load(g, e, e.handle, mark{}, random)
}
