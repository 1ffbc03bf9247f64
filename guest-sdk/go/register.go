package hostd

import (
	"reflect"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// definition is an entity type without its Go type parameters.
type definition struct {
	name     string
	encoding Encoding
	durable  bool

	snapshotEvery  int
	passivateAfter Duration
	alwaysOn       bool
	singleton      bool
	keepSnapshots  int
	retain         string // as in the manifest
	transient      bool   // durable is set too, but no state is emitted
	shardKey       shardKeyText
	stateForms     stateForms
	unchecked      bool // payloads are not checked against schemas
	noSchemas      bool
	sends, accepts *[]string // nil means any

	recordPrincipal bool

	// Only workflow types use these fields. now is the time of the handled event
	// or command, and id is its entity. release is called before a state is
	// dropped, and prepare before a state is read.
	workflow bool
	now      int64
	id       string
	release  func(state unsafe.Pointer)
	prepare  func(state unsafe.Pointer)

	initial  func() unsafe.Pointer // the state of a new entity
	blank    func() unsafe.Pointer // a zero state, to decode a snapshot into
	state    codec
	events   []event
	upcasts  upcasts
	commands []command
	queries  []query
	codecs   map[reflect.Type]codec
}

type event struct {
	declared string // the event's name
	name     string // the name with its version, which is the type of stored events
	codec    codec
	typ      uintptr // see typeWord
	append   func(dst []byte, value any) ([]byte, error)
	evolve   func(state unsafe.Pointer, payload []byte) error
}

type command struct {
	name     string
	internal bool
	in, out  codec
	run      func(c *Context, state unsafe.Pointer, payload []byte) error

	rejections *[]string // nil means not declared
}

type query struct {
	name    string
	in, out codec
	run     func(v *View, state unsafe.Pointer, payload []byte) error
}

// Event declares an event: its name in the journal, its Go type and how it
// changes the state. evolve must be deterministic and must not fail, because
// the event has already happened. Each Go type can be used for only one event.
func Event[S, E any](t *Type[S], name string, evolve func(s *S, e E)) {
	d := t.def
	if d.durable {
		panic("hostd: " + d.name + ": a durable-state type has no events")
	}
	d.mustName("event type", name, func(name []byte) bool { return d.event(name) != nil })
	word := typeWord(*new(E))
	if d.eventOf(word) != nil {
		panic("hostd: " + d.name + ": " + reflect.TypeFor[E]().String() + " is declared as two events")
	}
	c := d.mustCodec(reflect.TypeFor[E](), "event "+name)
	var value, zero E // reused, because evolve gets a copy whose pointers lead to new memory
	d.events = append(d.events, event{
		declared: name,
		name:     name,
		codec:    c,
		typ:      word,
		append: func(dst []byte, given any) ([]byte, error) {
			value = given.(E)
			return c.Append(dst, unsafe.Pointer(&value))
		},
		evolve: func(state unsafe.Pointer, payload []byte) error {
			value = zero
			if err := decode(c, payload, unsafe.Pointer(&value)); err != nil {
				return err
			}
			evolve((*S)(state), value)
			return nil
		},
	})
}

// Command declares a command. The handler decides: it emits events through c,
// each of which is applied to s immediately, and returns the reply. The handler
// must not change s in any other way, unless the type is durable-state. If it
// returns an error, the command is rejected and nothing is stored. Reject makes
// an error with a code; any other error has the code "error". A payload that
// cannot be decoded is rejected with the code "invalid_payload"; a payload that
// does not match the schema of C is rejected before the guest is called.
func Command[S, C, R any](t *Type[S], name string, handler func(c *Context, s *S, cmd C) (R, error), options ...CommandOption) {
	d := t.def
	d.mustName("command", name, func(name []byte) bool { return d.command(name) != nil })
	in := d.mustCodec(reflect.TypeFor[C](), "command "+name)
	out := d.mustCodec(reflect.TypeFor[R](), "reply of "+name)
	var (
		cmd, zero C // reused, because the handler gets a copy
		reply     R
	)
	made := command{name: name, in: in, out: out}
	for _, option := range options {
		option(&made)
	}
	made.run = func(c *Context, state unsafe.Pointer, payload []byte) (err error) {
		cmd = zero
		if err := decode(in, payload, unsafe.Pointer(&cmd)); err != nil {
			return &Rejection{CodeInvalidPayload, err.Error()}
		}
		if reply, err = handler(c, (*S)(state), cmd); err != nil {
			return err
		}
		c.guest.reply(out, unsafe.Pointer(&reply))
		return nil
	}
	d.commands = append(d.commands, made)
}

// CommandOption changes how the host treats a command.
type CommandOption func(*command)

// Internal hides a command, such as a step of a saga, from clients: only
// entities and timers may send it. If a client sends it, the host rejects it
// without calling the guest.
func Internal() CommandOption {
	return func(c *command) { c.internal = true }
}

// Rejects lists the codes with which a command's handler rejects it, in
// addition to the codes of the SDK, so that generated clients have them as a
// type. The host does not enforce the list.
func Rejects(codes ...string) CommandOption {
	list := append([]string{}, codes...)
	return func(c *command) { c.rejections = &list }
}

// Query declares a query. The handler reads s and must not change it. An error
// is handled as for Command.
func Query[S, Q, R any](t *Type[S], name string, handler func(v *View, s *S, q Q) (R, error)) {
	d := t.def
	d.mustName("query", name, func(name []byte) bool { return d.query(name) != nil })
	in := d.mustCodec(reflect.TypeFor[Q](), "query "+name)
	out := d.mustCodec(reflect.TypeFor[R](), "reply of "+name)
	var (
		q, zero Q
		reply   R
	)
	d.queries = append(d.queries, query{name, in, out, func(v *View, state unsafe.Pointer, payload []byte) (err error) {
		q = zero
		if err := decode(in, payload, unsafe.Pointer(&q)); err != nil {
			return &Rejection{CodeInvalidPayload, err.Error()}
		}
		if reply, err = handler(v, (*S)(state), q); err != nil {
			return err
		}
		v.guest.reply(out, unsafe.Pointer(&reply))
		return nil
	}})
}

func (d *definition) mustName(noun, name string, taken func([]byte) bool) {
	if err := abi.ValidateName(noun, name); err != nil {
		panic("hostd: " + d.name + ": " + err.Error())
	}
	if taken([]byte(name)) {
		panic("hostd: " + d.name + ": " + noun + " " + name + " is declared twice")
	}
}

func (d *definition) mustCodec(typ reflect.Type, what string) codec {
	c, err := d.codec(typ)
	if err != nil {
		panic("hostd: " + d.name + ": " + what + ": " + err.Error())
	}
	return c
}

// The lookups below compare names one by one, because a type has only a few
// names. They accept bytes, so that a name in a frame does not have to be
// copied.

func (d *definition) event(name []byte) *event {
	for i := range d.events {
		if d.events[i].name == string(name) {
			return &d.events[i]
		}
	}
	return nil
}

// typeWord identifies the dynamic type of an interface value: its first word,
// which is the same for equal types. Comparing it is cheaper than comparing
// reflect.Types, which matters because it is done for every event.
func typeWord(value any) uintptr { return *(*uintptr)(unsafe.Pointer(&value)) }

func (d *definition) eventOf(typ uintptr) *event {
	if typ == 0 {
		return nil
	}
	for i := range d.events {
		if d.events[i].typ == typ {
			return &d.events[i]
		}
	}
	return nil
}

func (d *definition) command(name []byte) *command {
	for i := range d.commands {
		if d.commands[i].name == string(name) {
			return &d.commands[i]
		}
	}
	return nil
}

func (d *definition) query(name []byte) *query {
	for i := range d.queries {
		if d.queries[i].name == string(name) {
			return &d.queries[i]
		}
	}
	return nil
}
