package abitest

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi"
)

// laterKind is an input kind that version 1 does not have.
const laterKind abi.Kind = 250

// unknownKinds checks that every call skips frames of unknown kinds before,
// between and after the known frames.
func (t *typeSuite) unknownKinds() error {
	random := t.random(uint64(t.typ)<<8 + 5)
	later := func(dst []byte) []byte { return abi.AppendFrame(dst, laterKind, "of a later version") }
	// The principal and settings frames are always present, even if the guest
	// reads neither of them.
	known := func(dst []byte) []byte {
		dst = abi.AppendSettings(dst, abi.AppendSetting(nil, "conformance", "yes"))
		return abi.AppendPrincipal(dst, "jwt", "conformance", "testers")
	}
	return t.with(t.options.Seed+5, func(g Instance) error {
		for _, e := range t.history {
			input := later(abi.AppendEntityID(later(nil), e.id))
			if e.state != nil {
				input = later(abi.AppendSnapshot(input, e.state))
			}
			if err := t.mustLoad(g, e.handle, input); err != nil {
				return err
			}
			var batch []byte
			for i, ev := range e.events {
				if batch = later(batch); len(batch) > t.options.Limits.BatchBytes/2 || i == len(e.events)-1 {
					batch = abi.AppendInputEvent(batch, ev.sequence, ev.at, ev.typ, ev.payload)
					if err := g.Apply(e.handle, later(batch)); err != nil {
						return err
					}
					batch = batch[:0]
					continue
				}
				batch = abi.AppendInputEvent(batch, ev.sequence, ev.at, ev.typ, ev.payload)
			}
			state, err := t.snapshot(g, e.handle)
			if err != nil {
				return err
			}
			if len(e.marks) > 0 {
				if err := same("the state with and without unknown frames", e.marks[len(e.marks)-1].snapshot, state); err != nil {
					return err
				}
			}
			for _, query := range t.def.Queries {
				if err := t.ask(g, e, query.Name, known(later(nil)), random); err != nil {
					return err
				}
			}
			for _, command := range t.def.Commands {
				if t.outcomes[command.Name] {
					continue // the entity has not requested it
				}
				a := asked{command: command.Name, payload: t.payload(command.Name, random), source: t.sourceOf(command.Name)}
				if _, err := t.send(g, e, a, known(later(nil)), random); err != nil {
					return fmt.Errorf("command %s: %w", command.Name, err)
				}
			}
		}
		return nil
	})
}

// unreadable checks that bytes that are not a snapshot do not cause a fault:
// the guest either rejects them with a status or accepts them as a snapshot,
// and the instance continues to work.
func (t *typeSuite) unreadable() error {
	return t.with(t.options.Seed+6, func(g Instance) error {
		for _, garbage := range []string{"", "\x00", "{", "\xff\xfe garbage", "null", "[1,2,3]"} {
			input := abi.AppendSnapshot(abi.AppendEntityID(nil, "damaged"), []byte(garbage))
			status, err := g.Load(t.typ, 0, input)
			if err != nil {
				return fmt.Errorf("snapshot %q: %w", garbage, err)
			}
			if status == abi.LoadDone {
				if err := g.Drop(0); err != nil {
					return err
				}
			}
		}
		return t.mustLoad(g, 0, abi.AppendEntityID(nil, "sound"))
	})
}

// large checks that the buffer accepts a request of every size up to the limit.
func (t *typeSuite) large() error {
	return t.with(t.options.Seed+7, func(g Instance) error {
		for _, size := range []int{0, 1, 4 << 10, 64<<10 + 1, t.options.Limits.RequestBytes + abi.LoadExtraBytes} {
			input := abi.AppendEntityID(nil, "large")
			if pad := size - len(input) - abi.HeaderBytes; pad >= 0 {
				input = abi.AppendFrame(input, laterKind, make([]byte, pad))
			}
			if err := t.mustLoad(g, 0, input); err != nil {
				return fmt.Errorf("load with an input of %d bytes: %w", len(input), err)
			}
			if err := g.Drop(0); err != nil {
				return err
			}
		}
		return nil
	})
}

// handles checks that dropping one entity does not affect the other entities,
// and that its handle can then be used for a new entity.
func (t *typeSuite) handles() error {
	random := t.random(uint64(t.typ)<<8 + 8)
	return t.with(t.options.Seed+8, func(g Instance) error {
		if err := t.mustLoad(g, 1000, abi.AppendEntityID(nil, "initial")); err != nil {
			return err
		}
		blank, err := t.snapshot(g, 1000)
		if err != nil {
			return err
		}
		for _, e := range t.history {
			if err := t.load(g, e, e.handle, mark{events: len(e.events), state: e.state}, random); err != nil {
				return err
			}
		}
		for i, e := range t.history {
			err := errors.Join(g.Drop(e.handle), t.mustLoad(g, e.handle, abi.AppendEntityID(nil, "next")))
			if err != nil {
				return err
			}
			state, err := t.snapshot(g, e.handle)
			if err != nil {
				return err
			}
			if err := same("a new entity's state on a new and on a reused handle", blank, state); err != nil {
				return err
			}
			if err := t.checkUnchanged(g, t.history[i+1:]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *typeSuite) checkUnchanged(g Instance, rest []*entity) error {
	for _, e := range rest {
		if len(e.marks) == 0 {
			continue
		}
		state, err := t.snapshot(g, e.handle)
		if err != nil {
			return err
		}
		if err := same("an entity's state before and after another was dropped", e.marks[len(e.marks)-1].snapshot, state); err != nil {
			return err
		}
	}
	return nil
}
