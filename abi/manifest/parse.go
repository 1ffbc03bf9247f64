package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// ErrInvalid is wrapped by every error of Parse and Validate.
var ErrInvalid = errors.New("invalid manifest")

// Error is the first fault of a manifest: its place, as a path such as
// entityTypes[0].commands[2].name, and a description. It unwraps to ErrInvalid.
type Error struct {
	Path   string
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "manifest: " + e.Reason
	}
	return "manifest: " + e.Path + ": " + e.Reason
}

func (e *Error) Unwrap() error { return ErrInvalid }

// Parse parses and validates a manifest. It keeps unknown members in Extra. The
// error is an *Error with the first fault.
func Parse(text []byte) (*Manifest, error) {
	var m Manifest
	members, err := object("", text)
	if err != nil {
		return nil, err
	}
	r := reader{members: members}
	r.read("abi", &m.ABI, required)
	r.read("name", &m.Name, required)
	r.read("version", &m.Version, optional)
	var types []json.RawMessage
	r.read("entityTypes", &types, required)
	r.defs(&m.Defs)
	m.Extra, m.size = r.rest(), len(text)
	for i := range types {
		if r.err != nil {
			break
		}
		var t EntityType
		t, r.err = parseType(fmt.Sprintf("entityTypes[%d]", i), types[i])
		m.EntityTypes = append(m.EntityTypes, t)
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

func parseType(path string, text json.RawMessage) (EntityType, error) {
	var t EntityType
	members, err := object(path, text)
	if err != nil {
		return t, err
	}
	r := reader{path: path, members: members}
	r.read("name", &t.Name, required)
	r.read("kind", &t.Kind, required)
	r.read("encoding", &t.Encoding, required)
	r.names("commands", &t.Commands, func(item *reader, to *Named) {
		item.read("internal", &to.Internal, optional)
		item.read("rejections", &to.Rejections, optional)
	})
	checked := true
	r.read("validate", &checked, optional)
	t.Unchecked = !checked
	t.State = r.schema("state")
	r.read("stateVersion", &t.StateVersion, optional)
	r.states(&t.ReadsStates)
	r.names("queries", &t.Queries, nil)
	r.events(&t.Events)
	r.read("snapshotEvery", &t.SnapshotEvery, optional)
	r.duration("passivateAfter", &t.PassivateAfter)
	r.alwaysOn(&t)
	r.read("retainSnapshots", &t.RetainSnapshots, optional)
	r.retention("retainEvents", &t.RetainEvents)
	r.read("singleton", &t.Singleton, optional)
	r.read("recordPrincipal", &t.RecordPrincipal, optional)
	r.shardKey(&t.ShardKey)
	r.read("sends", &t.Sends, optional)
	r.read("acceptsFrom", &t.AcceptsFrom, optional)
	t.Extra = r.rest()
	return t, r.err
}

// Names of the member that makes a type's entities always-on. Modules that were
// built for earlier releases use the second name, and are stored with it.
const (
	alwaysOnName       = "alwaysOn"
	storedAlwaysOnName = "rememberEntities"
)

// alwaysOn reads whether entities are always-on, by either name of the member.
func (r *reader) alwaysOn(t *EntityType) {
	_, now := r.members[alwaysOnName]
	_, t.EarlierAlwaysOn = r.members[storedAlwaysOnName]
	if now && t.EarlierAlwaysOn {
		r.fail(storedAlwaysOnName, "is the earlier name of "+alwaysOnName+", which is also given")
		return
	}
	r.read(alwaysOnName, &t.AlwaysOn, optional)
	r.read(storedAlwaysOnName, &t.AlwaysOn, optional)
}

// alwaysOnName returns the name that the manifest uses for the member.
func (t *EntityType) alwaysOnName() string {
	if t.EarlierAlwaysOn {
		return storedAlwaysOnName
	}
	return alwaysOnName
}

// Named retentions.
const (
	retainAllText       = "all"
	retainSnapshotsText = "snapshots"
)

// retention reads a named retention or a number of events.
func (r *reader) retention(name string, to *Retention) {
	text, ok := r.members[name]
	delete(r.members, name)
	var word string
	var count int64
	switch {
	case !ok:
	case json.Unmarshal(text, &word) == nil && word == retainAllText:
	case json.Unmarshal(text, &word) == nil && word == retainSnapshotsText:
		*to = RetainSnapshots
	case json.Unmarshal(text, &count) == nil && count >= 1 && count <= MaxRetain:
		*to = Retention(count)
	default:
		r.fail(name, fmt.Sprintf("is not %q, %q or a number from 1 to %d", retainAllText, retainSnapshotsText, MaxRetain))
	}
}

const (
	required = true
	optional = false
)

// reader removes members from an object until one of them has a fault.
type reader struct {
	path    string
	members map[string]json.RawMessage
	err     error
}

func (r *reader) fail(name, reason string) {
	if r.err == nil {
		r.err = &Error{Path: join(r.path, name), Reason: reason}
	}
}

func (r *reader) read(name string, target any, must bool) bool {
	text, ok := r.members[name]
	delete(r.members, name)
	switch {
	case r.err != nil:
		return false
	case !ok && must:
		r.fail(name, "is missing")
		return false
	case !ok:
		return false
	case bytes.Equal(text, []byte("null")):
		r.fail(name, "is null")
		return false
	}
	if err := json.Unmarshal(text, target); err != nil {
		r.fail(name, "is not "+kindName(target))
		return false
	}
	return true
}

// names reads a list of commands or queries; more reads their further members.
func (r *reader) names(name string, target *[]Named, more func(*reader, *Named)) {
	var items []json.RawMessage
	if !r.read(name, &items, optional) {
		return
	}
	*target = make([]Named, 0, len(items))
	for i := range items {
		item := r.item(name, i, items[i])
		if item == nil {
			return
		}
		var one Named
		item.read("name", &one.Name, required)
		if more != nil {
			more(item, &one)
		}
		one.Schema, one.Reply = item.schema("schema"), item.schema("reply")
		one.Extra = item.rest()
		if r.err = item.err; r.err != nil {
			return
		}
		*target = append(*target, one)
	}
}

func (r *reader) events(target *[]EventType) {
	var items []json.RawMessage
	if !r.read("events", &items, optional) {
		return
	}
	*target = make([]EventType, 0, len(items))
	for i := range items {
		item := r.item("events", i, items[i])
		if item == nil {
			return
		}
		var one EventType
		item.read("type", &one.Type, required)
		item.read("upcastTo", &one.UpcastTo, optional)
		one.Schema = item.schema("schema")
		one.Extra = item.rest()
		if r.err = item.err; r.err != nil {
			return
		}
		*target = append(*target, one)
	}
}

// item opens element i of a list of objects.
func (r *reader) item(name string, i int, text json.RawMessage) *reader {
	path := fmt.Sprintf("%s[%d]", join(r.path, name), i)
	members, err := object(path, text)
	if err != nil {
		r.err = err
		return nil
	}
	return &reader{path: path, members: members}
}

func (r *reader) duration(name string, target *time.Duration) {
	var text string
	if !r.read(name, &text, optional) {
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.fail(name, `is not a duration such as "2m"`)
		return
	}
	*target = d
}

// shardKey reads a shard key. An unknown member is a fault, because it could
// change the shards of entities.
func (r *reader) shardKey(target *ShardKey) {
	var text json.RawMessage
	if !r.read("shardKey", &text, optional) {
		return
	}
	path := join(r.path, "shardKey")
	members, err := object(path, text)
	if err != nil {
		r.err = err
		return
	}
	k := reader{path: path, members: members}
	k.read("group", &target.Group, optional)
	k.read("until", &target.Until, optional)
	if k.err == nil && *target == (ShardKey{}) {
		k.err = &Error{Path: path, Reason: "has neither group nor until"}
	}
	for _, name := range slices.Sorted(maps.Keys(k.members)) {
		k.fail(name, "is not a member of a shard key")
	}
	r.err = k.err
}

// rest returns the members that were not read, or nil.
func (r *reader) rest() map[string]json.RawMessage {
	if len(r.members) == 0 {
		return nil
	}
	return r.members
}

func object(path string, text []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(text) {
		return nil, &Error{Path: path, Reason: "is not valid UTF-8"}
	}
	if !json.Valid(text) {
		return nil, &Error{Path: path, Reason: "is not valid JSON"}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, &Error{Path: path, Reason: "is not a JSON object"}
	}
	return members, nil
}

func kindName(target any) string {
	switch target.(type) {
	case *int:
		return "a whole number"
	case *bool:
		return "true or false"
	case *json.RawMessage:
		return "JSON"
	case *[]json.RawMessage:
		return "a list"
	case *[]string:
		return "a list of strings"
	}
	return "a string"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
