package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StateForm is an earlier form of a type's states: its version, and its schema,
// which may be nil.
type StateForm struct {
	Version int
	Schema  json.RawMessage
	Extra   map[string]json.RawMessage
}

// stateEvent is the type of the event that carries a durable state.
const stateEvent = "state"

// StateEvent returns the type of the event that carries a durable state of a
// version: "state" for version 1, "state.v2" for version 2. A type without
// versions has version 1.
func StateEvent(version int) string {
	if version <= 1 {
		return stateEvent
	}
	return stateEvent + ".v" + strconv.Itoa(version)
}

// StateEventVersion returns the version of a state from the type of its event;
// 0 if the event does not carry a state.
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

// States are the state versions that a type declares. The zero States belong to
// a type that declares no versions.
type States struct {
	version int // version that it writes; 0 means 1
	event   string
	reads   []int // earlier versions that it reads
}

// States returns the state versions that the type declares.
func (t *EntityType) States() States {
	s := States{version: max(1, t.StateVersion)}
	s.event = StateEvent(s.version)
	for i := range t.ReadsStates {
		s.reads = append(s.reads, t.ReadsStates[i].Version)
	}
	return s
}

// Version returns the version that the type writes.
func (s *States) Version() int { return max(1, s.version) }

// Event returns the type of the events that carry the states that the type
// writes.
func (s *States) Event() string {
	if s.event == "" {
		return stateEvent
	}
	return s.event
}

// Migrates reports whether the type reads versions other than its own.
func (s *States) Migrates() bool { return len(s.reads) > 0 }

// Check returns an *UnreadStateError if the type does not read states of the
// given version. Version 0 stands for the type's own version.
func (s *States) Check(version int) error {
	if version == 0 || version == s.Version() || slices.Contains(s.reads, version) {
		return nil
	}
	return &UnreadStateError{version}
}

// InputVersion returns the version to pass to the guest with a state. It
// returns 0 for the type's own version, which is not passed.
func (s *States) InputVersion(version int) uint64 {
	if version == s.Version() {
		return 0
	}
	return uint64(version)
}

// UnreadStateError means that a module does not read states of a version. The
// version is negative if it is unknown.
type UnreadStateError struct{ Version int }

func (e *UnreadStateError) Error() string {
	if e.Version < 0 {
		return "the version of the state is unknown, because the module that made it was removed"
	}
	return fmt.Sprintf("the module reads no states of version %d", e.Version)
}

// states reads the list of earlier versions.
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

// validateStates checks that the type may have the list, and checks its length
// and each version, which may occur only once.
func (t *EntityType) validateStates(path string) error {
	if t.ReadsStates != nil && t.Kind == Transient {
		return &Error{path, fmt.Sprintf("is only for stored types, but the kind of this type is %q", Transient)}
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
			return &Error{at, "is the type's own stateVersion"}
		}
		if slices.ContainsFunc(t.ReadsStates[:i], func(s StateForm) bool { return s.Version == version }) {
			return &Error{at, "is duplicated"}
		}
	}
	return nil
}
