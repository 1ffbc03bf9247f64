package manifest

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// MarshalJSON encodes the manifest in the order that the contract shows,
// followed by the unknown members, sorted. Equal manifests have equal bytes.
func (m *Manifest) MarshalJSON() ([]byte, error) {
	w := newWriter()
	w.member("abi", m.ABI)
	w.member("name", m.Name)
	if m.Version != "" {
		w.member("version", m.Version)
	}
	types := make([]json.RawMessage, len(m.EntityTypes))
	for i := range m.EntityTypes {
		types[i] = m.EntityTypes[i].marshal(w)
	}
	w.member("entityTypes", types)
	if m.Defs != nil {
		w.member("$defs", m.Defs)
	}
	return w.end(m.Extra), w.err
}

func (t *EntityType) marshal(parent *writer) json.RawMessage {
	w := newWriter()
	w.member("name", t.Name)
	w.member("kind", t.Kind)
	w.member("encoding", t.Encoding)
	if t.Commands != nil {
		w.member("commands", marshalNames(w, t.Commands))
	}
	if t.Queries != nil {
		w.member("queries", marshalNames(w, t.Queries))
	}
	if t.Events != nil {
		w.member("events", marshalEvents(w, t.Events))
	}
	if t.SnapshotEvery != 0 {
		w.member("snapshotEvery", t.SnapshotEvery)
	}
	if t.PassivateAfter != 0 {
		w.member("passivateAfter", durationText(t.PassivateAfter))
	}
	if t.AlwaysOn {
		w.member(t.alwaysOnName(), true)
	}
	if t.RetainSnapshots != 0 {
		w.member("retainSnapshots", t.RetainSnapshots)
	}
	switch t.RetainEvents {
	case RetainAll:
	case RetainSnapshots:
		w.member("retainEvents", retainSnapshotsText)
	default:
		w.member("retainEvents", int64(t.RetainEvents))
	}
	if t.Singleton {
		w.member("singleton", true)
	}
	if t.RecordPrincipal {
		w.member("recordPrincipal", true)
	}
	if t.ShardKey != (ShardKey{}) {
		w.member("shardKey", t.ShardKey)
	}
	if t.Sends != nil {
		w.member("sends", t.Sends)
	}
	if t.AcceptsFrom != nil {
		w.member("acceptsFrom", t.AcceptsFrom)
	}
	if t.State != nil {
		w.member("state", t.State)
	}
	if t.StateVersion != 0 {
		w.member("stateVersion", t.StateVersion)
	}
	if t.ReadsStates != nil {
		w.member("readsStates", marshalStates(w, t.ReadsStates))
	}
	if t.Unchecked {
		w.member("validate", false)
	}
	text := w.end(t.Extra)
	parent.adopt(w.err)
	return text
}

func marshalNames(parent *writer, names []Named) []json.RawMessage {
	list := make([]json.RawMessage, len(names))
	for i := range names {
		w := newWriter()
		w.member("name", names[i].Name)
		if names[i].Internal {
			w.member("internal", true)
		}
		if names[i].Rejections != nil {
			w.member("rejections", names[i].Rejections)
		}
		if names[i].Schema != nil {
			w.member("schema", names[i].Schema)
		}
		if names[i].Reply != nil {
			w.member("reply", names[i].Reply)
		}
		list[i] = w.end(names[i].Extra)
		parent.adopt(w.err)
	}
	return list
}

func marshalEvents(parent *writer, events []EventType) []json.RawMessage {
	list := make([]json.RawMessage, len(events))
	for i := range events {
		w := newWriter()
		w.member("type", events[i].Type)
		if events[i].UpcastTo != "" {
			w.member("upcastTo", events[i].UpcastTo)
		}
		if events[i].Schema != nil {
			w.member("schema", events[i].Schema)
		}
		list[i] = w.end(events[i].Extra)
		parent.adopt(w.err)
	}
	return list
}

// durationText returns the shortest text that time.ParseDuration parses: 2m,
// where Duration.String returns 2m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if d%time.Hour == 0 {
		return text[:len(text)-len("0m0s")]
	}
	if d%time.Minute == 0 {
		return text[:len(text)-len("0s")]
	}
	return text
}

// writer builds one JSON object.
type writer struct {
	buffer bytes.Buffer
	err    error
}

func newWriter() *writer {
	w := &writer{}
	w.buffer.WriteByte('{')
	return w
}

func (w *writer) member(name string, value any) {
	text, err := json.Marshal(value)
	w.adopt(err)
	if w.buffer.Len() > 1 {
		w.buffer.WriteByte(',')
	}
	key, _ := json.Marshal(name) // marshaling a string never fails
	w.buffer.Write(key)
	w.buffer.WriteByte(':')
	w.buffer.Write(text)
}

func (w *writer) end(extra map[string]json.RawMessage) json.RawMessage {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		w.member(name, extra[name])
	}
	w.buffer.WriteByte('}')
	return w.buffer.Bytes()
}

func (w *writer) adopt(err error) {
	if w.err == nil {
		w.err = err
	}
}
