package hostd

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// upcasts are the upcasts of a type.
type upcasts struct {
	list  []upcast  // upcasts by name and version, once linked
	onWay [2][]byte // payloads between two upcasts
}

// upcast converts a version of an event to the next version.
type upcast struct {
	name    string // name of the event
	version int
	stored  string // type of stored events of this version
	in      codec
	takes   uintptr // see typeWord
	gives   uintptr
	run     func(dst, payload []byte) ([]byte, error)
}

// Upcast declares an earlier version of an event. version is its number,
// starting at 1, Old is the Go type with which it was written, and up converts
// it to the next version. The current version, which Event declares, is the
// version after the last upcast version. Events are emitted with the version
// appended to their name, such as placed.v2; version 1 has only the name.
// Leading versions may be omitted if no event of these versions is stored.
//
//	hostd.Upcast(order, "placed", 1, func(old PlacedV1) Placed {
//		return Placed{Items: []Item{{old.Item, 1}}}
//	})
//	hostd.Event(order, "placed", func(s *State, e Placed) { ... })
//
// up must be deterministic and must not fail, like the function of Event.
// Stored events are not changed: they are upcast each time they are read.
func Upcast[S, Old, New any](t *Type[S], name string, version int, up func(Old) New) {
	d := t.def
	if d.durable {
		panic("hostd: " + d.name + ": a durable-state type has no events")
	}
	if version < 1 || version > maxEventVersion {
		panic("hostd: " + d.name + ": event " + name + ": a version must be between 1 and " + strconv.Itoa(maxEventVersion))
	}
	what := "event " + name + " of version " + strconv.Itoa(version)
	for i := range d.upcasts.list {
		if d.upcasts.list[i].name == name && d.upcasts.list[i].version == version {
			panic("hostd: " + d.name + ": " + what + " is upcast twice")
		}
	}
	in := d.mustCodec(reflect.TypeFor[Old](), what)
	out := d.mustCodec(reflect.TypeFor[New](), what)
	var (
		old, zero Old // reused, as in Event
		made      New
	)
	d.upcasts.list = append(d.upcasts.list, upcast{
		name: name, version: version, stored: versionedName(name, version),
		in: in, takes: typeWord(zero), gives: typeWord(made),
		run: func(dst, payload []byte) ([]byte, error) {
			old = zero
			if err := decode(in, payload, unsafe.Pointer(&old)); err != nil {
				return dst, err
			}
			made = up(old)
			return out.Append(dst, unsafe.Pointer(&made))
		},
	})
}

// maxEventVersion limits the versions of an event.
const maxEventVersion = 1000

// versionedName returns the type of the stored events of a version.
func versionedName(name string, version int) string {
	if version == 1 {
		return name
	}
	return name + ".v" + strconv.Itoa(version)
}

// link assigns versions to the events that have upcasts. It may be called
// again.
func (d *definition) link() {
	slices.SortFunc(d.upcasts.list, func(a, b upcast) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
	})
	for i := range d.upcasts.list {
		u := &d.upcasts.list[i]
		what := "hostd: " + d.name + ": event " + u.name + " of version " + strconv.Itoa(u.version)
		next := u.gives
		if i+1 < len(d.upcasts.list) && d.upcasts.list[i+1].name == u.name {
			if after := &d.upcasts.list[i+1]; after.version != u.version+1 || after.takes != next {
				panic(what + " must be upcast to the type of the next version")
			}
			continue
		}
		at := slices.IndexFunc(d.events, func(e event) bool { return e.declared == u.name })
		if at < 0 || d.events[at].typ != next {
			panic(what + " must be upcast to the event's current type")
		}
		d.events[at].name = versionedName(u.name, u.version+1)
	}
	// The versioned name could collide with the name of another event.
	for i := range d.events {
		name := d.events[i].name
		if err := abi.ValidateName("event type", name); err != nil {
			panic("hostd: " + d.name + ": " + err.Error())
		}
		if d.event([]byte(name)) != &d.events[i] || d.upcastOf([]byte(name)) != nil {
			panic("hostd: " + d.name + ": event type " + name + " is declared twice")
		}
	}
}

func (d *definition) upcastOf(name []byte) *upcast {
	for i := range d.upcasts.list {
		if d.upcasts.list[i].stored == string(name) {
			return &d.upcasts.list[i]
		}
	}
	return nil
}

// upcastToNewest returns the declaration of the current event for a stored
// event, and the upcast payload. It returns nil for an event type that is not
// declared. The payload is valid until the next call.
func (d *definition) upcastToNewest(name, payload []byte) (*event, []byte, error) {
	if e := d.event(name); e != nil {
		return e, payload, nil
	}
	u := d.upcastOf(name)
	if u == nil {
		return nil, nil, nil
	}
	for {
		// Two buffers are used alternately, because an upcast must not overwrite its
		// own input.
		into := &d.upcasts.onWay[u.version%2]
		var err error
		if *into, err = u.run((*into)[:0], payload); err != nil {
			return nil, nil, err
		}
		payload = *into
		next := versionedName(u.name, u.version+1)
		if e := d.event([]byte(next)); e != nil {
			return e, payload, nil
		}
		if u = d.upcastOf([]byte(next)); u == nil {
			return nil, nil, nil
		}
	}
}

// Upcast returns the events in the input in their current form: with the type
// that is emitted now, and its payload. Events of types that the module does
// not upcast are returned unchanged. Upcast panics on events that it cannot
// decode.
func (g *Guest) Upcast(typ int32, input []byte) []byte {
	if typ < 0 || int(typ) >= len(g.types) {
		panic("hostd: upcast of an unknown entity type")
	}
	d := g.types[typ]
	g.out = g.out[:0]
	for reader := abi.NewReader(input); ; {
		frame, ok, err := reader.Next()
		if err != nil {
			panic("hostd: " + err.Error())
		}
		if !ok {
			return g.out
		}
		if frame.Kind != abi.InEvent {
			continue
		}
		in, err := abi.DecodeInputEvent(frame.Body)
		if err == nil {
			err = g.upcast(d, in)
		}
		if err != nil {
			panic("hostd: upcast of event type " + string(in.Type) + ": " + err.Error())
		}
	}
}

func (g *Guest) upcast(d *definition, in abi.InputEvent) error {
	if d.durable {
		return g.upcastState(d, in)
	}
	event, payload, err := d.upcastToNewest(in.Type, in.Payload)
	switch {
	case err != nil:
		return err
	case event == nil:
		g.out = abi.AppendEvent(g.out, string(in.Type), in.Payload)
	default:
		g.out = abi.AppendEvent(g.out, event.name, payload)
	}
	return nil
}

// upcastState is upcast for a durable state, which readers receive as an event.
func (g *Guest) upcastState(d *definition, in abi.InputEvent) error {
	for i := range d.stateForms.older {
		version := d.stateForms.older[i].version
		if versionedName(stateEvent, version) != string(in.Type) {
			continue
		}
		state, status := d.migrate(uint64(version), in.Payload)
		if status != abi.LoadDone {
			return &abi.NameError{Noun: "the state", Reason: "cannot be read"}
		}
		text, err := d.state.Append(nil, state)
		g.out = abi.AppendEvent(g.out, versionedName(stateEvent, d.stateForms.version), text)
		return err
	}
	g.out = abi.AppendEvent(g.out, string(in.Type), in.Payload)
	return nil
}

// stateEvent is the type of the events that carry durable states of version 1
// to readers.
const stateEvent = "state"
