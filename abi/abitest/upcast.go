package abitest

import (
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

// upcastTo reports whether the manifest lists event types of older forms.
func (t *typeSuite) upcastTo() bool {
	for i := range t.def.Events {
		if t.def.Events[i].UpcastTo != "" {
			return true
		}
	}
	return false
}

// upcast checks that an event of an older form, drawn from its schema, changes
// an entity in the same way as the upcast event that readers receive. An event
// that cannot be applied proves nothing, because it may never have been
// emitted.
func (t *typeSuite) upcast() error {
	tried := 0
	for i := range t.def.Events {
		e := &t.def.Events[i]
		if e.UpcastTo == "" || e.Schema == nil || t.def.Encoding != manifest.JSON {
			continue
		}
		s, err := schema.Inspect(e.Schema, t.report.Manifest.Defs)
		if err != nil {
			return fmt.Errorf("the schema of events of type %s: %w", e.Type, err)
		}
		random := t.random(uint64(t.typ)<<8 + 10 + uint64(i)<<32)
		for range earlierTries {
			payload, ok := s.Sample(random)
			if !ok {
				break
			}
			did, err := t.upcastOne(e, payload)
			if err != nil {
				return fmt.Errorf("event %s with payload %.100q: %w", e.Type, payload, err)
			}
			if did {
				tried++
			}
		}
	}
	if tried == 0 {
		return skip("the module upcasts nothing for readers, or the manifest has no schema of an older form")
	}
	return nil
}

func (t *typeSuite) upcastOne(e *manifest.EventType, payload []byte) (did bool, err error) {
	frame := func(eventType string, payload []byte) []byte {
		return abi.AppendInputEvent(nil, 1, start, eventType, payload)
	}
	before, err := t.stateAfterEvent(frame(e.Type, payload))
	if err != nil {
		return false, nil
	}
	var made, is []byte
	err = t.with(t.options.Seed, func(g Instance) error {
		u, has := g.(Upcaster)
		if did = has && u.Upcasts(); !did {
			return nil
		}
		answer, err := u.Upcast(t.typ, frame(e.Type, payload))
		if err != nil {
			return err
		}
		eventType, upcast, err := abi.UpcastEvent(answer, t.options.Limits.EventBytes)
		made, is = append([]byte{}, eventType...), append([]byte{}, upcast...)
		return err
	})
	if err != nil || !did {
		return did, err
	}
	if string(made) != e.UpcastTo {
		return did, fmt.Errorf("%s makes it %.100q, and the manifest says %s", abi.ExportUpcast, made, e.UpcastTo)
	}
	after, err := t.stateAfterEvent(frame(e.UpcastTo, is))
	if err != nil {
		return did, fmt.Errorf("what readers get, %.100q, cannot be applied: %w", is, err)
	}
	return did, same("the state that it makes, and that of what readers get,", before, after)
}

// stateAfterEvent returns the state of a new entity after one event.
func (t *typeSuite) stateAfterEvent(frame []byte) (state []byte, err error) {
	err = t.with(t.options.Seed, func(g Instance) error {
		if err := t.mustLoad(g, 0, abi.AppendEntityID(nil, "upcast")); err != nil {
			return err
		}
		if err := g.Apply(0, frame); err != nil {
			return err
		}
		state, err = t.snapshot(g, 0)
		return err
	})
	return state, err
}
