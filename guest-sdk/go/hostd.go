// Package hostd is the SDK for entities written in Go. An entity type is a
// state struct, and functions that decide on commands, evolve the state by
// events and answer queries:
//
//	type State struct{ Total int64 }
//	type Add struct{ Amount int64 `json:"amount"` }
//	type Added struct{ Amount int64 `json:"amount"` }
//	type Total struct{ Total int64 `json:"total"` }
//
//	func Counter() *hostd.Type[State] {
//		counter := hostd.Entity[State]("counter", hostd.JSON)
//		hostd.Event(counter, "added", func(s *State, e Added) { s.Total += e.Amount })
//		hostd.Command(counter, "add", func(c *hostd.Context, s *State, cmd Add) (Total, error) {
//			c.Emit(Added{cmd.Amount})
//			return Total{s.Total}, nil
//		})
//		return counter
//	}
//
//	var _ = hostd.Serve("counter", "1.0.0", Counter())
//
//	func main() {}
//
// Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o counter.wasm .
//
// A module built so is a reactor: its package variables and init functions
// run when it is instantiated, and main never does, which is why Serve is
// called from a variable.
//
// Emit writes the event, reads it back from the bytes it wrote, and evolves
// the state by it, so that a live entity and a replayed one take the same
// path. Evolving must not read the clock, draw random numbers or range over a
// map where order matters; a command may use Context.Now and Context.Random.
//
// The same entity runs natively under go test: see package hostdtest. The SDK
// starts no goroutine, and nothing in it is safe for concurrent use; the host
// calls an instance from one place at a time.
package hostd

import (
	"reflect"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// Encoding says what the payloads of an entity type are.
type Encoding uint8

// Encodings.
const (
	// JSON: payloads are JSON text. encoding/json's struct tags apply;
	// omitempty is the one option supported. The tag hostd has options for the
	// schema: required, min=N, max=N, enum=A|B, desc=TEXT, which comes last.
	JSON Encoding = iota
	// Bytes: payloads are opaque. Types are []byte, string, or have the
	// methods AppendBinary or MarshalBinary, and UnmarshalBinary.
	Bytes
)

// None stands for no payload: a command or query that takes none ignores what
// it is sent, and a handler that returns one makes no reply.
type None struct{}

// Type is an entity type whose state is an S. Make one with Entity or
// Durable, add to it with Event, Command and Query, and give it to Serve.
type Type[S any] struct {
	def *definition
}

// Registration is a *Type of any state.
type Registration interface{ definition() *definition }

func (t *Type[S]) definition() *definition { return t.def }

// Option changes how the host treats an entity type.
type Option func(*definition)

// SnapshotEvery asks for a snapshot after that many events.
func SnapshotEvery(events int) Option {
	return func(d *definition) { d.snapshotEvery = events }
}

// PassivateAfter asks the host to drop an entity from memory after it has
// been idle so long.
func PassivateAfter(idle Duration) Option {
	return func(d *definition) { d.passivateAfter = idle }
}

// RememberEntities asks the host to activate the entities again by itself
// after a restart or fail-over.
func RememberEntities() Option {
	return func(d *definition) { d.remember = true }
}

// ShardKey puts entities that belong together into one shard: those whose ids
// are the same up to the first until, among the types with the same group. An
// empty until means the whole id, an empty group the type's own name. It can
// never change once the type has been activated.
func ShardKey(group, until string) Option {
	return func(d *definition) { d.shardKey = shardKeyText{group, until} }
}

// Entity declares an event-sourced entity type. The state of a new entity is
// the zero S; where that will not do, see Initial. It panics where the name
// or S will not do: that is at start-up, with the reason.
func Entity[S any](name string, encoding Encoding, options ...Option) *Type[S] {
	return declare[S](name, encoding, false, options)
}

// Durable declares a durable-state entity type: its commands change the state
// in place, and what is stored is the state after each command that changed
// it, not events. A command that is rejected leaves the state as it was.
func Durable[S any](name string, encoding Encoding, options ...Option) *Type[S] {
	return declare[S](name, encoding, true, options)
}

// Transient declares a type whose entities keep nothing: their state is in
// memory, their commands change it in place, and it is lost when they leave
// memory or their node. They emit no events, send nothing and set no timers.
func Transient[S any](name string, encoding Encoding, options ...Option) *Type[S] {
	t := declare[S](name, encoding, true, options)
	t.def.transient = true
	return t
}

// RetainSnapshots asks the host to keep that many snapshots of an entity, up to
// 4.
func RetainSnapshots(snapshots int) Option {
	return func(d *definition) { d.keepSnapshots = snapshots }
}

// CutEvents lets the host cut the events that no snapshot it keeps needs. They
// cannot be read any more, and every later version of the module must read the
// snapshots of this one.
func CutEvents() Option {
	return func(d *definition) { d.retain = `"snapshots"` }
}

// RetainEvents is CutEvents, but that an entity's last events stay.
func RetainEvents(last int) Option {
	return func(d *definition) { d.retain = strconv.Itoa(last) }
}

// Singleton gives the type one entity, with the id "singleton", that is in
// memory at all times.
func Singleton() Option {
	return func(d *definition) { d.singleton = true }
}

// StateVersion numbers the form of the state. A module that says the number of
// the one before may load its snapshots, once a verification of all entities
// has found that it makes the same of them. Raise it when snapshots of the
// version before are not what this one would have written.
func StateVersion(version int) Option {
	return func(d *definition) { d.stateForms.version = version }
}

// Unchecked has the host give payloads to the entity though they do not fit the
// schemas that the manifest has of them.
func Unchecked() Option {
	return func(d *definition) { d.unchecked = true }
}

// NoSchemas keeps schemas of the type out of the manifest: a cluster takes
// modules with schemas from level 2 on.
func NoSchemas() Option {
	return func(d *definition) { d.noSchemas = true }
}

// RecordPrincipal has the cluster keep who called with the record of each
// command that a client made, and show it with the events.
func RecordPrincipal() Option {
	return func(d *definition) { d.recordPrincipal = true }
}

// Sends names the types that entities of this one may send to: names, or the
// beginnings of some with * behind them. A command that sends to another type
// fails, and nothing of it is stored. With none named the entities send to
// nobody; without this option, to any type. To itself an entity always may.
func Sends(entityTypes ...string) Option {
	return func(d *definition) { d.sends = d.typePatterns("sends", entityTypes) }
}

// AcceptsFrom names the types that entities of this one take messages from, as
// Sends does. The host refuses a message of another type with the code
// "not_accepted", and the entity is not called. Outcomes of an entity's own
// messages are always taken. Without this option messages of any type are
// taken, or, where roles decide, of types of the same owner.
func AcceptsFrom(entityTypes ...string) Option {
	return func(d *definition) { d.accepts = d.typePatterns("accepts from", entityTypes) }
}

func (d *definition) typePatterns(what string, list []string) *[]string {
	if len(list) > abi.MaxTypePatterns {
		panic("hostd: " + d.name + " " + what + " more than " + strconv.Itoa(abi.MaxTypePatterns) + " types")
	}
	for _, p := range list {
		if err := abi.ValidateTypePattern(p); err != nil {
			panic("hostd: " + d.name + " " + what + " " + strconv.Quote(p) + ": " + err.Error())
		}
	}
	list = append([]string{}, list...)
	return &list
}

func declare[S any](name string, encoding Encoding, durable bool, options []Option) *Type[S] {
	if err := abi.ValidateEntityType(name); err != nil {
		panic("hostd: " + err.Error())
	}
	d := &definition{name: name, encoding: encoding, durable: durable, codecs: make(map[reflect.Type]codec)}
	d.state = d.mustCodec(reflect.TypeFor[S](), "state")
	d.stateForms.word = typeWord(*new(S))
	d.blank = func() unsafe.Pointer { return unsafe.Pointer(new(S)) }
	d.initial = d.blank
	for _, option := range options {
		option(d)
	}
	return &Type[S]{def: d}
}

// Initial sets the state of a new entity. It must return an equal state each
// time, sharing nothing.
func (t *Type[S]) Initial(make func() S) {
	t.def.initial = func() unsafe.Pointer {
		state := make()
		return unsafe.Pointer(&state)
	}
}
