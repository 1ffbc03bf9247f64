// Package manifest is what a module says about itself: the JSON document
// hostd_describe returns. It parses, validates and writes it.
//
// It never looks at a module's code, and it starts no goroutine. It is apart
// from package abi because it needs a JSON parser, which a guest should not
// have to link.
package manifest

import (
	"encoding/json"
	"time"
)

// Manifest describes a module. Extra holds the members this version does not
// know, as they came; they are kept when the manifest is written again.
type Manifest struct {
	ABI         int
	Name        string
	Version     string
	EntityTypes []EntityType
	// Defs are the $defs that the module's schemas share.
	Defs  map[string]json.RawMessage
	Extra map[string]json.RawMessage

	size int // of the text that it was read from
}

// Size is how many bytes the manifest had when it was read; 0 for one that was
// not.
func (m *Manifest) Size() int { return m.size }

// EntityType describes one entity type. Its index in Manifest.EntityTypes is
// the type argument of hostd_load.
type EntityType struct {
	Name     string
	Kind     Kind
	Encoding Encoding

	// Commands and Queries are nil when the manifest does not list them: the
	// guest then decides on every name. A list, even an empty one, is
	// complete. Events is a description only.
	Commands []Named
	Queries  []Named
	Events   []EventType

	SnapshotEvery    int           // events between snapshots; 0 leaves it to the node
	PassivateAfter   time.Duration // idle time; 0 leaves it to the node
	RememberEntities bool          // activate again by itself after a fail-over
	RetainSnapshots  int           // of an entity; 0 leaves it to the node
	RetainEvents     Retention     // RetainAll unless said otherwise
	RecordPrincipal  bool          // who made a command is kept with its record
	Singleton        bool          // one entity, SingletonID, in memory at all times
	ShardKey         ShardKey      // which entities share a shard; zero is none

	// Sends are the types that entities of this one may send to, AcceptsFrom
	// those that they take messages from, as abi.MatchesType reads them. Nil is
	// any. Neither is about what an entity sends to itself.
	Sends       []string
	AcceptsFrom []string

	// State is the schema of the state, and StateVersion a number that says
	// when its form has changed; 0 is none. Unchecked has nodes give payloads to
	// the guest though they do not fit the schemas of commands and queries.
	State        json.RawMessage
	StateVersion int
	Unchecked    bool
	// ReadsStates are the earlier forms of its states that a type
	// reads, by version; see StateEvent.
	ReadsStates []StateForm

	Extra map[string]json.RawMessage
}

// ShardKey says what of an entity decides its shard: Group, or the type where
// that is empty, and what stands in the id before the first Until, or the whole
// id. It never changes from one module of a type to the next.
type ShardKey struct {
	Group string `json:"group,omitempty"`
	Until string `json:"until,omitempty"`
}

// Retention says which events of an entity stay when a snapshot is taken: the
// last so many, or RetainAll or RetainSnapshots. What the oldest snapshot kept
// needs always stays.
type Retention int64

// Retentions that are no number.
const (
	RetainAll       Retention = 0
	RetainSnapshots Retention = -1
)

// Snapshots is the retention as snapshots carry it: 0 all, or one more than how
// many of the last events stay in any case.
func (r Retention) Snapshots() uint64 {
	if r == RetainAll {
		return 0
	}
	return uint64(max(r, 0)) + 1
}

// SingletonID is the id of the one entity of a singleton type.
const SingletonID = "singleton"

// Named is a command or a query. An Internal command comes from entities and
// timers only; a query never is.
type Named struct {
	Name     string
	Internal bool
	// Schema is that of the payload, Reply that of the answer; nil is any.
	// CheckSchemas says whether they are schemas at all.
	Schema json.RawMessage
	Reply  json.RawMessage
	// Rejections are the codes by which a command is rejected, for those who
	// write clients; nil does not say. Nodes do not hold guests to them.
	Rejections []string
	Extra      map[string]json.RawMessage
}

// EventType is a type of event. Schema is that of its payload; nil is any.
// UpcastTo is the type that the module reads it as, in a form of today; empty
// where it reads it as it is.
type EventType struct {
	Type     string
	UpcastTo string
	Schema   json.RawMessage
	Extra    map[string]json.RawMessage
}

// SameState reports that two modules say of an event-sourced type that its
// state has one form: the same version, which is not none.
func SameState(a, b *Manifest, entityType string) bool {
	one, _, ok := a.Type(entityType)
	two, _, other := b.Type(entityType)
	return ok && other && one.StateVersion != 0 && one.StateVersion == two.StateVersion && one.Kind == EventSourced && two.Kind == EventSourced
}

// Kind says how the state of an entity type is kept.
type Kind string

// Kinds of entity type.
const (
	EventSourced Kind = "event-sourced"
	DurableState Kind = "durable-state"
	// Transient: nowhere; it is lost when the entity leaves memory.
	Transient Kind = "transient"
)

// Encoding says what payloads are.
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
	MaxNameBytes     = 128 // of the module's name
	MaxVersionBytes  = 64
	MaxSnapshotEvery = 1_000_000
	MaxPassivate     = 30 * 24 * time.Hour
	MaxRetain        = 1_000_000_000 // events

	MaxRetainSnapshots = 4
	MaxUntilBytes      = 16
	MaxStateVersion    = 1_000_000_000
	MaxReadsStates     = 64

	MaxDefs         = 256    // schemas in $defs
	MaxSchemaWeight = 32_768 // of all schemas of a module, as schema.Weight counts
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

// HasCommand reports whether the type may be sent that command: it is listed,
// or nothing is listed.
func (t *EntityType) HasCommand(name string) bool { return listed(t.Commands, name) }

// IsInternal reports whether the command is listed as an internal one.
func (t *EntityType) IsInternal(name string) bool {
	for i := range t.Commands {
		if t.Commands[i].Name == name {
			return t.Commands[i].Internal
		}
	}
	return false
}

// HasQuery reports whether the type may be asked that query.
func (t *EntityType) HasQuery(name string) bool { return listed(t.Queries, name) }

func listed(names []Named, name string) bool {
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
