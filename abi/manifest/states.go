package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StateForm is a form that the states of a type had: its version, and its
// schema, which is nil if nobody says.
type StateForm struct {
	Version int
	Schema  json.RawMessage
	Extra   map[string]json.RawMessage
}

// stateEvent is the type of the event that carries a durable state.
const stateEvent = "state"

// StateEvent is the type of the event that carries a durable state of a
// version: "state" of the first, "state.v2" of the second. That of a type that
// numbers none is the first.
func StateEvent(version int) string {
	if version <= 1 {
		return stateEvent
	}
	return stateEvent + ".v" + strconv.Itoa(version)
}

// StateEventVersion is the version of a state by the type of its event; 0 for
// an event that carries none.
func StateEventVersion(event string) int {
	if event == stateEvent {
		return 1
	}
	digits, is := strings.CutPrefix(event, stateEvent+".v")
	version, err := strconv.Atoi(digits)
	if !is || err != nil || version < 2 || StateEvent(version) != event {
		return 0
	}
	return version
}

// States is what a type says of the versions of its states. The zero States are
// those of a type that says nothing.
type States struct {
	version int // that it writes; 0 is 1
	event   string
	reads   []int // others that it reads
}

// States is what the type says of the versions of its states.
func (t *EntityType) States() States {
	s := States{version: max(1, t.StateVersion)}
	s.event = StateEvent(s.version)
	for i := range t.ReadsStates {
		s.reads = append(s.reads, t.ReadsStates[i].Version)
	}
	return s
}

// Version is the one that the type writes.
func (s *States) Version() int { return max(1, s.version) }

// Event is the type of the events that carry the states that the type writes.
func (s *States) Event() string {
	if s.event == "" {
		return stateEvent
	}
	return s.event
}

// Migrates reports that the type reads states of other versions than its own.
func (s *States) Migrates() bool { return len(s.reads) > 0 }

// Check returns an *UnreadStateError for a state of a version that the type
// does not read. Version 0 is its own.
func (s *States) Check(version int) error {
	if version == 0 || version == s.Version() || slices.Contains(s.reads, version) {
		return nil
	}
	return &UnreadStateError{version}
}

// Given is the version that a guest is told of a state; 0 for one that it is
// not told of, because it is its own.
func (s *States) Given(version int) uint64 {
	if version == s.Version() {
		return 0
	}
	return uint64(version)
}

// UnreadStateError says that a module does not read states of a version, which
// is negative if nobody knows it.
type UnreadStateError struct{ Version int }

func (e *UnreadStateError) Error() string {
	if e.Version < 0 {
		return "the version of the state is not known, as the module that made it was removed"
	}
	return fmt.Sprintf("the module reads no states of version %d", e.Version)
}

// states reads the list of earlier forms.
func (r *reader) states(target *[]StateForm) {
	var items []json.RawMessage
	if !r.read("readsStates", &items, optional) {
		return
	}
	*target = make([]StateForm, 0, len(items))
	for i := range items {
		item := r.item("readsStates", i, items[i])
		if item == nil {
			return
		}
		var one StateForm
		item.read("version", &one.Version, required)
		one.Schema = item.schema("schema")
		one.Extra = item.rest()
		if r.err = item.err; r.err != nil {
			return
		}
		*target = append(*target, one)
	}
}

func marshalStates(parent *writer, states []StateForm) []json.RawMessage {
	list := make([]json.RawMessage, len(states))
	for i := range states {
		w := newWriter()
		w.member("version", states[i].Version)
		if states[i].Schema != nil {
			w.member("schema", states[i].Schema)
		}
		list[i] = w.end(states[i].Extra)
		parent.adopt(w.err)
	}
	return list
}

// validateStates checks the list: who may have one, how many, each version,
// none twice.
func (t *EntityType) validateStates(path string) error {
	if t.ReadsStates != nil && t.Kind == Transient {
		return &Error{path, fmt.Sprintf("is for types that are stored, and the kind of this one is %q", Transient)}
	}
	if len(t.ReadsStates) > MaxReadsStates {
		return &Error{path, fmt.Sprintf("%d entries, limit %d", len(t.ReadsStates), MaxReadsStates)}
	}
	for i := range t.ReadsStates {
		at, version := fmt.Sprintf("%s[%d].version", path, i), t.ReadsStates[i].Version
		if version < 1 || version > MaxStateVersion {
			return &Error{at, fmt.Sprintf("is not between 1 and %d", MaxStateVersion)}
		}
		if version == max(1, t.StateVersion) {
			return &Error{at, "is the version of the type itself"}
		}
		if slices.ContainsFunc(t.ReadsStates[:i], func(s StateForm) bool { return s.Version == version }) {
			return &Error{at, "is there twice"}
		}
	}
	return nil
}
