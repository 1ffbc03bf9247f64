// Package manifest parses, validates and writes manifests. A manifest is the
// JSON document that hostd_describe returns to describe a module.
//
// It never looks at a module's code, and it starts no goroutine. It is separate
// from package abi because it needs a JSON parser, which a guest should not
// have to link.
package manifest

import (
	"encoding/json"
	"time"
)

// Manifest describes a module. Extra holds unknown members verbatim, so that
// they are preserved when the manifest is written again.
type Manifest struct {
	ABI         int
	Name        string
	Version     string
	EntityTypes []EntityType
	// Defs are the $defs that the module's schemas share.
	Defs  map[string]json.RawMessage
	Extra map[string]json.RawMessage

	size int // size of the parsed text
}

// Size returns the size in bytes of the text from which the manifest was
// parsed; 0 if it was not parsed.
func (m *Manifest) Size() int { return m.size }

// EntityType describes one entity type. Its index in Manifest.EntityTypes is
// the type argument of hostd_load.
type EntityType struct {
	Name     string
	Kind     Kind
	Encoding Encoding

	// Commands and Queries are nil if the manifest does not list them: the
	// guest then decides on every name. A list, even an empty list, is
	// complete. Events is only descriptive.
	Commands []Named
	Queries  []Named
	Events   []EventType

	SnapshotEvery   int           // events between snapshots; 0 leaves it to the node
	PassivateAfter  time.Duration // idle time; 0 leaves it to the node
	AlwaysOn        bool          // start the entities again after a fail-over
	EarlierAlwaysOn bool          // the manifest uses the name of AlwaysOn from earlier releases
	RetainSnapshots int           // number per entity; 0 leaves it to the node
	RetainEvents    Retention     // default RetainAll
	RecordPrincipal bool          // store the caller of a command with its record
	Singleton       bool          // one entity, SingletonID, that is always in memory
	ShardKey        ShardKey      // which entities share a shard; zero for no key

	// Sends lists the types to which entities of this type may send, and
	// AcceptsFrom the types whose messages they accept. Both are patterns for
	// abi.MatchesType; nil allows any type. Neither list restricts the messages
	// that an entity sends to itself.
	Sends       []string
	AcceptsFrom []string

	// State is the schema of the state. StateVersion is a number that changes with
	// the format of the state; 0 means no version. If Unchecked is set, nodes pass
	// payloads to the guest even if they do not match the schemas of commands and
	// queries.
	State        json.RawMessage
	StateVersion int
	Unchecked    bool
	// ReadsStates lists the earlier state versions that the type can read; see
	// StateEvent.
	ReadsStates []StateForm

	Extra map[string]json.RawMessage
}

// ShardKey determines which parts of an entity's type and id decide its shard:
// Group, or the type if Group is empty, and the part of the id before the first
// Until, or the whole id. It is the same in all modules of a type.
type ShardKey struct {
	Group string `json:"group,omitempty"`
	Until string `json:"until,omitempty"`
}

// Retention determines which events of an entity are kept when a snapshot is
// taken. It is the number of last events to keep, or RetainAll, or
// RetainSnapshots. Events that the oldest retained snapshot needs are always
// kept.
type Retention int64

// Retentions that are not a number of events.
const (
	RetainAll       Retention = 0
	RetainSnapshots Retention = -1
)

// Snapshots returns the retention as snapshots encode it: 0 for all events,
// otherwise one more than the number of last events to keep.
func (r Retention) Snapshots() uint64 {
	if r == RetainAll {
		return 0
	}
	return uint64(max(r, 0)) + 1
}

// SingletonID is the id of the only entity of a singleton type.
const SingletonID = "singleton"

// Named is a command or a query. An Internal command can be sent only by
// entities and timers; a query is never internal.
type Named struct {
	Name     string
	Internal bool
	// Schema is the schema of the payload, and Reply is the schema of the reply;
	// nil allows anything. CheckSchemas checks whether they are valid schemas.
	Schema json.RawMessage
	Reply  json.RawMessage
	// Rejections lists the codes with which the command is rejected, for client
	// authors; nil if the module does not declare them. Nodes do not enforce
	// the list.
	Rejections []string
	Extra      map[string]json.RawMessage
}

// EventType is a type of event. Schema is the schema of its payload; nil allows
// anything. UpcastTo is the current event type to which the module upcasts the
// event; empty if the event needs no upcast.
type EventType struct {
	Type     string
	UpcastTo string
	Schema   json.RawMessage
	Extra    map[string]json.RawMessage
}

// SameState reports whether two modules declare the same version of the state
// of an event-sourced type. It returns false if either of them declares no
// version.
func SameState(a, b *Manifest, entityType string) bool {
	one, _, ok := a.Type(entityType)
	two, _, other := b.Type(entityType)
	return ok && other && one.StateVersion != 0 && one.StateVersion == two.StateVersion && one.Kind == EventSourced && two.Kind == EventSourced
}

// Kind is the way in which the state of an entity type is stored.
type Kind string

// Kinds of entity type.
const (
	EventSourced Kind = "event-sourced"
	DurableState Kind = "durable-state"
	// Transient state is not stored: it is lost when the entity leaves memory.
	Transient Kind = "transient"
	// Workflow is like EventSourced, for runs of code that can wait. A workflow
	// type has no snapshots, and a module that fails on an open run cannot be
	// activated.
	Workflow Kind = "workflow"
)

// IsReplayed reports whether the state is computed from events.
func (k Kind) IsReplayed() bool { return k == EventSourced || k == Workflow }

// Encoding is the encoding of payloads.
type Encoding string

// Encodings of payloads.
const (
	JSON  Encoding = "json"
	Bytes Encoding = "bytes"
)

// Limits of a manifest.
const (
	MaxEntityTypes   = 64
	MaxNames         = 256 // commands, queries or events of one type
	MaxNameBytes     = 128 // size of the module's name
	MaxVersionBytes  = 64
	MaxSnapshotEvery = 1_000_000
	MaxPassivate     = 30 * 24 * time.Hour
	MaxRetain        = 1_000_000_000 // events

	MaxRetainSnapshots = 4
	MaxUntilBytes      = 16
	MaxStateVersion    = 1_000_000_000
	MaxReadsStates     = 64

	MaxDefs         = 256    // schemas in $defs
	MaxSchemaWeight = 32_768 // total weight of a module's schemas, see schema.Schema.Weight
)

// Type returns the entity type of that name and its index.
func (m *Manifest) Type(name string) (*EntityType, int, bool) {
	for i := range m.EntityTypes {
		if m.EntityTypes[i].Name == name {
			return &m.EntityTypes[i], i, true
		}
	}
	return nil, 0, false
}

// HasCommand reports whether the type accepts that command: it is listed, or
// there is no list.
func (t *EntityType) HasCommand(name string) bool { return isListed(t.Commands, name) }

// IsInternal reports whether the command is listed as internal.
func (t *EntityType) IsInternal(name string) bool {
	for i := range t.Commands {
		if t.Commands[i].Name == name {
			return t.Commands[i].Internal
		}
	}
	return false
}

// HasQuery reports whether the type accepts that query.
func (t *EntityType) HasQuery(name string) bool { return isListed(t.Queries, name) }

func isListed(names []Named, name string) bool {
	if names == nil {
		return true
	}
	for i := range names {
		if names[i].Name == name {
			return true
		}
	}
	return false
}
