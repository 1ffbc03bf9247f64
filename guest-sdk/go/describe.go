package hostd

import (
	"reflect"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/guest-sdk/go/internal/jsonplan"
)

// The manifest as it is written. Package abi/manifest, which also parses it, is
// not linked into guests.
type (
	manifestText struct {
		ABI         int        `json:"abi"`
		Name        string     `json:"name"`
		Version     string     `json:"version,omitempty"`
		EntityTypes []typeText `json:"entityTypes"`
		Defs        RawJSON    `json:"$defs,omitempty"`
	}
	typeText struct {
		Name           string          `json:"name"`
		Kind           string          `json:"kind"`
		Encoding       string          `json:"encoding"`
		Commands       []commandText   `json:"commands"`
		Queries        []nameText      `json:"queries"`
		Events         []eventTypeText `json:"events"`
		SnapshotEvery  int             `json:"snapshotEvery,omitempty"`
		PassivateAfter string          `json:"passivateAfter,omitempty"`
		AlwaysOn       bool            `json:"alwaysOn,omitempty"`
		KeepSnapshots  int             `json:"retainSnapshots,omitempty"`
		Retain         RawJSON         `json:"retainEvents,omitempty"`
		Singleton      bool            `json:"singleton,omitempty"`
		RecordsCaller  bool            `json:"recordPrincipal,omitempty"`
		ShardKey       *shardKeyText   `json:"shardKey,omitempty"`
		Sends          *[]string       `json:"sends,omitempty"`
		AcceptsFrom    *[]string       `json:"acceptsFrom,omitempty"`
		State          RawJSON         `json:"state,omitempty"`
		StateVersion   int             `json:"stateVersion,omitempty"`
		ReadsStates    []stateText     `json:"readsStates,omitempty"`
		Validate       *bool           `json:"validate,omitempty"`
	}
	stateText struct {
		Version int     `json:"version"`
		Schema  RawJSON `json:"schema,omitempty"`
	}
	shardKeyText struct {
		Group string `json:"group,omitempty"`
		Until string `json:"until,omitempty"`
	}
	commandText struct {
		Name       string    `json:"name"`
		Internal   bool      `json:"internal,omitempty"`
		Rejections *[]string `json:"rejections,omitempty"`
		Schema     RawJSON   `json:"schema,omitempty"`
		Reply      RawJSON   `json:"reply,omitempty"`
	}
	nameText struct {
		Name   string  `json:"name"`
		Schema RawJSON `json:"schema,omitempty"`
		Reply  RawJSON `json:"reply,omitempty"`
	}
	eventTypeText struct {
		Type     string  `json:"type"`
		UpcastTo string  `json:"upcastTo,omitempty"`
		Schema   RawJSON `json:"schema,omitempty"`
	}
)

// Describe returns the module's manifest.
func (g *Guest) Describe() []byte {
	m := manifestText{ABI: abi.Version, Name: g.name, Version: g.version}
	var s jsonplan.Schemas
	for _, d := range g.types {
		m.EntityTypes = append(m.EntityTypes, d.describe(&s))
	}
	m.Defs = s.Defs()
	plan, err := jsonplan.For(reflect.TypeFor[manifestText]())
	if err != nil {
		panic("hostd: " + err.Error())
	}
	if g.out, err = plan.Append(g.out[:0], unsafe.Pointer(&m)); err != nil {
		panic("hostd: " + err.Error())
	}
	return g.out
}

// schema returns the schema of a codec's values; nil for bytes and for None.
func (d *definition) schema(s *jsonplan.Schemas, c codec, form jsonplan.Form) RawJSON {
	plan, is := c.(*jsonplan.Plan)
	if !is || d.noSchemas {
		return nil
	}
	return s.Of(nil, plan, form)
}

func (d *definition) describe(s *jsonplan.Schemas) typeText {
	t := typeText{
		Name: d.name, Kind: "event-sourced", Encoding: "json",
		Commands: []commandText{}, Queries: []nameText{}, Events: []eventTypeText{},
		SnapshotEvery: d.snapshotEvery, AlwaysOn: d.alwaysOn, Singleton: d.singleton, RecordsCaller: d.recordPrincipal, KeepSnapshots: d.keepSnapshots, Retain: RawJSON(d.retain),
		Sends: d.sends, AcceptsFrom: d.accepts,
	}
	if d.shardKey != (shardKeyText{}) {
		t.ShardKey = &d.shardKey
	}
	t.State, t.StateVersion = d.schema(s, d.state, jsonplan.Written), d.stateForms.version
	for i := range d.stateForms.older {
		m := &d.stateForms.older[i]
		t.ReadsStates = append(t.ReadsStates, stateText{m.version, d.schema(s, m.in, jsonplan.Written)})
	}
	if d.unchecked {
		t.Validate = new(bool)
	}
	if d.durable {
		t.Kind = "durable-state"
	}
	if d.transient {
		t.Kind = "transient"
	}
	if d.workflow {
		t.Kind = "workflow"
	}
	if d.encoding == Bytes {
		t.Encoding = "bytes"
	}
	if d.passivateAfter != 0 {
		t.PassivateAfter = strconv.FormatInt(int64(d.passivateAfter), 10) + "ns"
	}
	for i := range d.commands {
		c, form := &d.commands[i], jsonplan.Closed
		if c.internal {
			form = jsonplan.Given // the sender is a different module, which may be newer
		}
		t.Commands = append(t.Commands, commandText{c.name, c.internal, c.rejections, d.schema(s, c.in, form), d.schema(s, c.out, jsonplan.Written)})
	}
	for i := range d.queries {
		q := &d.queries[i]
		t.Queries = append(t.Queries, nameText{q.name, d.schema(s, q.in, jsonplan.Closed), d.schema(s, q.out, jsonplan.Written)})
	}
	for i := range d.events {
		t.Events = append(t.Events, eventTypeText{Type: d.events[i].name, Schema: d.schema(s, d.events[i].codec, jsonplan.Written)})
	}
	for i := range d.upcasts.list {
		u := &d.upcasts.list[i]
		last := i
		for last+1 < len(d.upcasts.list) && d.upcasts.list[last+1].name == u.name {
			last++
		}
		to := versionedName(u.name, d.upcasts.list[last].version+1)
		t.Events = append(t.Events, eventTypeText{u.stored, to, d.schema(s, u.in, jsonplan.Written)})
	}
	return t
}
