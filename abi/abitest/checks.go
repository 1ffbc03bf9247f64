package abitest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
)

// with runs f on a new instance and closes it.
func (t *typeSuite) with(seed uint64, f func(Instance) error) error {
	g, err := t.module.Open(t.ctx, seed)
	if err != nil {
		return fmt.Errorf("open an instance: %w", err)
	}
	return errors.Join(f(g), g.Close())
}

func (t *typeSuite) run() {
	name := t.def.Name
	t.check("load", name, t.initial)
	if t.def.ReadsStates != nil {
		t.check("earlier-states", name, t.earlier)
	}
	if t.upcastTo() {
		t.check("upcast", name, t.upcast)
	}
	if !t.check("handle", name, t.handle) {
		return // the other checks would only repeat the fault
	}
	t.check("replay", name, t.replay)
	if t.def.Kind != manifest.Workflow { // runs are replayed from their first event
		t.check("snapshot", name, t.roundTrip)
	}
	t.check("query", name, t.query)
	t.check("unknown-kinds", name, t.unknownKinds)
	t.check("unreadable-snapshot", name, t.unreadable)
	t.check("large-input", name, t.large)
	t.check("handles", name, t.handles)
}

// initial checks that a new entity has the same state in any instance.
func (t *typeSuite) initial() error {
	var states [2][]byte
	for i := range states {
		err := t.with(t.options.Seed+uint64(i), func(g Instance) (err error) {
			if err := t.mustLoad(g, 0, abi.AppendEntityID(nil, "initial")); err != nil {
				return err
			}
			states[i], err = t.snapshot(g, 0)
			return err
		})
		if err != nil {
			return err
		}
	}
	return same("the initial state in two instances", states[0], states[1])
}

// same compares two states. If they differ, its error quotes both states from
// shortly before the first difference.
func same(what string, a, b []byte) error {
	if bytes.Equal(a, b) {
		return nil
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-20)
	return fmt.Errorf("%s differs at byte %d: %.80q and %.80q", what, at, a[from:], b[from:])
}

// handle runs commands on several entities of one instance in turn, and keeps
// their histories for the other checks.
func (t *typeSuite) handle() error {
	names := cloneNamed(t.def.Commands)
	if len(names) == 0 {
		for name := range t.options.Samples[t.def.Name] {
			names = append(names, manifest.Named{Name: name})
		}
	}
	if len(names) == 0 {
		return skip("the manifest lists no command, and no samples were given")
	}
	t.scout(names)
	random := t.random(uint64(t.typ)<<8 + 1)
	return t.with(t.options.Seed, func(g Instance) error {
		if err := t.entities(g, random); err != nil {
			return err
		}
		for i := range t.options.Commands * t.options.Entities {
			if t.ctx.Err() != nil {
				return t.ctx.Err()
			}
			e, a := t.next(i, names, random)
			if err := t.command(g, e, a, random); err != nil {
				return err
			}
		}
		return nil
	})
}

func cloneNamed(list []manifest.Named) []manifest.Named {
	return append([]manifest.Named(nil), list...)
}

// requireEffects returns an error unless a command had an effect that can be
// replayed.
func (t *typeSuite) requireEffects() error {
	for _, e := range t.history {
		if len(e.events) > 0 || e.state != nil {
			return nil
		}
	}
	if t.transient() {
		return skip("the type keeps nothing")
	}
	return skip("no command stored anything; give samples of payloads")
}

// replay checks that the same events, replayed by an instance with another seed
// and in different batches, produce the same bytes, at the end and at every
// mark.
func (t *typeSuite) replay() error {
	if err := t.requireEffects(); err != nil {
		return err
	}
	random := t.random(uint64(t.typ)<<8 + 2)
	return t.with(^t.options.Seed, func(g Instance) error {
		for _, e := range t.history {
			for range 4 {
				if len(e.marks) == 0 {
					break
				}
				at := e.marks[random.IntN(len(e.marks))]
				if err := t.checkReplay(g, e, at, random); err != nil {
					return err
				}
			}
			if len(e.marks) > 0 {
				if err := t.checkReplay(g, e, e.marks[len(e.marks)-1], random); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (t *typeSuite) checkReplay(g Instance, e *entity, at mark, random *rand.Rand) error {
	if err := t.load(g, e, e.handle, at, random); err != nil {
		return err
	}
	state, err := t.snapshot(g, e.handle)
	if err == nil {
		err = same(fmt.Sprintf("the state after %d events, live and replayed,", at.events), at.snapshot, state)
	}
	return errors.Join(err, g.Drop(e.handle))
}

// roundTrip checks that a state loaded from a snapshot is the state that was
// saved, and that the same events then change it in the same way as the live
// state.
func (t *typeSuite) roundTrip() error {
	if err := t.requireEffects(); err != nil {
		return err
	}
	random := t.random(uint64(t.typ)<<8 + 3)
	return t.with(t.options.Seed+3, func(g Instance) error {
		for _, e := range t.history {
			for i := range e.marks {
				if err := t.continueAfterSnapshot(g, e, i, random); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// continueAfterSnapshot loads the snapshot of mark i and, if there is a next
// mark, applies the events between the two marks.
func (t *typeSuite) continueAfterSnapshot(g Instance, e *entity, i int, random *rand.Rand) error {
	from := e.marks[i]
	input := abi.AppendSnapshot(abi.AppendEntityID(nil, e.id), from.snapshot)
	input = abi.AppendSequence(input, e.sequence-uint64(len(e.events)-from.events))
	if err := t.mustLoad(g, e.handle, input); err != nil {
		return err
	}
	state, err := t.snapshot(g, e.handle)
	if err != nil {
		return err
	}
	if err := same("a snapshot, taken and loaded,", from.snapshot, state); err != nil {
		return err
	}
	if !t.durable() && i+1 < len(e.marks) {
		next := e.marks[i+1]
		if err := t.apply(g, e.handle, e.events[from.events:next.events], random); err != nil {
			return err
		}
		if state, err = t.snapshot(g, e.handle); err != nil {
			return err
		}
		if err := same("the state after a snapshot and the events behind it", next.snapshot, state); err != nil {
			return err
		}
	}
	return g.Drop(e.handle)
}

// query checks that queries return replies or rejections and change nothing.
func (t *typeSuite) query() error {
	names := cloneNamed(t.def.Queries)
	if len(names) == 0 {
		return skip("the manifest lists no query")
	}
	random := t.random(uint64(t.typ)<<8 + 4)
	return t.each(t.options.Seed+4, random, func(g Instance, e *entity) error {
		before, err := t.snapshot(g, e.handle)
		if err != nil {
			return err
		}
		for range 4 {
			for _, query := range names {
				if err := t.ask(g, e, query.Name, nil, random); err != nil {
					return err
				}
			}
		}
		after, err := t.snapshot(g, e.handle)
		if err != nil {
			return err
		}
		return same("the state before and after queries", before, after)
	})
}

func (t *typeSuite) ask(g Instance, e *entity, name string, more []byte, random *rand.Rand) error {
	payload := t.payload(name, random)
	env := Env{Now: e.now(), Seed: random.Uint64()}
	input := abi.AppendSequence(more, e.sequence)
	input = abi.AppendName(input, name)
	input = abi.AppendPayload(input, payload)
	input = abi.AppendNow(input, env.Now)
	frames, err := g.Query(e.handle, input, env)
	if err == nil {
		err = abi.ParseOutput(new(abi.Output), frames, abi.QueryOnly, &t.options.Limits)
	}
	if err != nil {
		return fmt.Errorf("query %s with payload %.100q: %w", name, payload, err)
	}
	return nil
}

// each loads the last state of every entity into a new instance and runs f on
// it.
func (t *typeSuite) each(seed uint64, random *rand.Rand, f func(Instance, *entity) error) error {
	return t.with(seed, func(g Instance) error {
		for _, e := range t.history {
			if err := t.load(g, e, e.handle, mark{events: len(e.events), state: e.state}, random); err != nil {
				return err
			}
			if err := f(g, e); err != nil {
				return err
			}
		}
		return nil
	})
}
