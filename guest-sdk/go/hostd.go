// Package hostd is the SDK for entities written in Go. An entity type is a
// state struct, and functions that decide on commands, apply events to the
// state and answer queries:
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
// The result is a reactor module: its package variables and init functions run
// when it is instantiated, and main never does. That is why Serve is called
// from a package variable.
//
// Emit encodes the event, decodes it from the bytes that it wrote, and applies
// it to the state, so that live and replayed entities use the same code. Event
// functions must not read the clock, draw random numbers or depend on the order
// of a map; a command may use Context.Now and Context.Random.
//
// The same entity runs natively under go test: see package hostdtest. The SDK
// starts no goroutine, and nothing in it is safe for concurrent use, because
// the host makes one call to an instance at a time.
package hostd

import (
	"reflect"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// Encoding is the encoding of an entity type's payloads.
type Encoding uint8

// Encodings.
const (
	// JSON means that payloads are JSON text. The struct tags of encoding/json
	// apply, with omitempty as the only supported option. The tag hostd has
	// options for the schema: required, min=N, max=N, enum=A|B, and desc=TEXT,
	// which must be the last option.
	JSON Encoding = iota
	// Bytes means that payloads are opaque. Their Go types are []byte, string,
	// or have the methods AppendBinary or MarshalBinary, and UnmarshalBinary.
	Bytes
)

// None means no payload: a command or query that accepts None ignores its
// payload, and a handler that returns None sends no reply.
type None struct{}

// Type is an entity type whose state is an S. Create it with Entity, Durable or
// Transient, add to it with Event, Command and Query, and pass it to Serve.
type Type[S any] struct {
	def *definition
}

// Registration is a *Type with any state.
type Registration interface{ definition() *definition }

func (t *Type[S]) definition() *definition { return t.def }

// Option changes how the host treats an entity type.
type Option func(*definition)

// SnapshotEvery asks the host to take a snapshot after every given number of
// events.
func SnapshotEvery(events int) Option {
	return func(d *definition) { d.snapshotEvery = events }
}

// PassivateAfter asks the host to remove an entity from memory once it has been
// idle for the given time.
func PassivateAfter(idle Duration) Option {
	return func(d *definition) { d.passivateAfter = idle }
}

// AlwaysOn makes the entities always-on: the host starts them again by itself
// after a restart or fail-over.
func AlwaysOn() Option {
	return func(d *definition) { d.alwaysOn = true }
}

// ShardKey places related entities in one shard. Entities share a shard if
// their types have the same group and their ids are equal up to the first
// occurrence of until. An empty until means the whole id, and an empty group
// means the type's own name. The shard key can never change once the type has
// been activated.
func ShardKey(group, until string) Option {
	return func(d *definition) { d.shardKey = shardKeyText{group, until} }
}

// Entity declares an event-sourced entity type. The state of a new entity is
// the zero S, or the state that Initial sets. Entity panics at start-up with the
// reason if the name or S is not valid.
func Entity[S any](name string, encoding Encoding, options ...Option) *Type[S] {
	return declare[S](name, encoding, false, options)
}

// Durable declares a durable-state entity type: its commands change the state
// in place, and the host stores the state after each command that changed it
// instead of events. A rejected command leaves the state unchanged.
func Durable[S any](name string, encoding Encoding, options ...Option) *Type[S] {
	return declare[S](name, encoding, true, options)
}

// Transient declares a type whose entities store nothing. Their state is in
// memory, their commands change it in place, and the state is lost when the
// entity leaves memory or moves to another node. The entities emit no events,
// send nothing and set no timers.
func Transient[S any](name string, encoding Encoding, options ...Option) *Type[S] {
	t := declare[S](name, encoding, true, options)
	t.def.transient = true
	return t
}

// RetainSnapshots asks the host to keep the given number of snapshots of an
// entity, at most 4.
func RetainSnapshots(snapshots int) Option {
	return func(d *definition) { d.keepSnapshots = snapshots }
}

// CutEvents lets the host delete the events that no retained snapshot needs.
// Deleted events can no longer be read, and every later version of the module
// must be able to read the snapshots of this version.
func CutEvents() Option {
	return func(d *definition) { d.retain = `"snapshots"` }
}

// RetainEvents is like CutEvents, except that the given number of last events
// of an entity is kept.
func RetainEvents(last int) Option {
	return func(d *definition) { d.retain = strconv.Itoa(last) }
}

// Singleton gives the type exactly one entity, with the id "singleton", that is
// always in memory.
func Singleton() Option {
	return func(d *definition) { d.singleton = true }
}

// StateVersion sets the version of the state's format. A module with the same
// version as the previous module may load that module's snapshots, once a
// compatibility check of all entities has found that both modules read the
// snapshots in the same way. Increment the version if the previous version's
// snapshots differ from those that this version would write.
func StateVersion(version int) Option {
	return func(d *definition) { d.stateForms.version = version }
}

// Unchecked makes the host pass payloads to the entity even if they do not
// match their schemas in the manifest.
func Unchecked() Option {
	return func(d *definition) { d.unchecked = true }
}

// NoSchemas omits the type's schemas from the manifest, because a cluster
// accepts modules with schemas only from cluster version 2 on.
func NoSchemas() Option {
	return func(d *definition) { d.noSchemas = true }
}

// RecordPrincipal makes the cluster store the caller of each client command
// with its record, and return it with the events.
func RecordPrincipal() Option {
	return func(d *definition) { d.recordPrincipal = true }
}

// Sends lists the types to which entities of this type may send: names, or
// prefixes followed by *. A command that sends to any other type fails, and
// nothing is stored. If the list is empty, the entities may not send at all;
// without this option, they may send to any type. An entity may always send to
// itself.
func Sends(entityTypes ...string) Option {
	return func(d *definition) { d.sends = d.typePatterns("sends", entityTypes) }
}

// AcceptsFrom lists the types whose messages entities of this type accept, in
// the form of Sends. The host rejects a message from any other type with the
// code "not_accepted", without calling the entity. Outcomes of an entity's own
// messages are always accepted. Without this option, messages of any type are
// accepted or, if role checks are on, messages of types with the same owner.
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

// Initial sets the state of a new entity. The function must return an equal
// state each time, without shared references.
func (t *Type[S]) Initial(make func() S) {
	t.def.initial = func() unsafe.Pointer {
		state := make()
		return unsafe.Pointer(&state)
	}
}
