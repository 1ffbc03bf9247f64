package hostd

import (
	"reflect"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/guest-sdk/go/internal/jsonplan"
)

// The manifest as it is written. Package abi/manifest, which also reads it,
// is not linked into guests.
type (
	manifestText struct {
		ABI         int        `json:"abi"`
		Name        string     `json:"name"`
		Version     string     `json:"version,omitempty"`
		EntityTypes []typeText `json:"entityTypes"`
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
		Remember       bool            `json:"rememberEntities,omitempty"`
		KeepSnapshots  int             `json:"retainSnapshots,omitempty"`
		Retain         RawJSON         `json:"retainEvents,omitempty"`
		Singleton      bool            `json:"singleton,omitempty"`
		ShardKey       *shardKeyText   `json:"shardKey,omitempty"`
		Sends          *[]string       `json:"sends,omitempty"`
		AcceptsFrom    *[]string       `json:"acceptsFrom,omitempty"`
	}
	shardKeyText struct {
		Group string `json:"group,omitempty"`
		Until string `json:"until,omitempty"`
	}
	commandText struct {
		Name     string `json:"name"`
		Internal bool   `json:"internal,omitempty"`
	}
	nameText struct {
		Name string `json:"name"`
	}
	eventTypeText struct {
		Type string `json:"type"`
	}
)

// Describe returns the module's manifest.
func (g *Guest) Describe() []byte {
	m := manifestText{ABI: abi.Version, Name: g.name, Version: g.version}
	for _, d := range g.types {
		m.EntityTypes = append(m.EntityTypes, d.describe())
	}
	plan, err := jsonplan.For(reflect.TypeFor[manifestText]())
	if err != nil {
		panic("hostd: " + err.Error())
	}
	if g.out, err = plan.Append(g.out[:0], unsafe.Pointer(&m)); err != nil {
		panic("hostd: " + err.Error())
	}
	return g.out
}

func (d *definition) describe() typeText {
	t := typeText{
		Name: d.name, Kind: "event-sourced", Encoding: "json",
		Commands: []commandText{}, Queries: []nameText{}, Events: []eventTypeText{},
		SnapshotEvery: d.snapshotEvery, Remember: d.remember, Singleton: d.singleton, KeepSnapshots: d.keepSnapshots, Retain: RawJSON(d.retain),
		Sends: d.sends, AcceptsFrom: d.accepts,
	}
	if d.group != "" || d.until != "" {
		t.ShardKey = &shardKeyText{d.group, d.until}
	}
	if d.durable {
		t.Kind = "durable-state"
	}
	if d.transient {
		t.Kind = "transient"
	}
	if d.encoding == Bytes {
		t.Encoding = "bytes"
	}
	if d.passivateAfter != 0 {
		t.PassivateAfter = strconv.FormatInt(int64(d.passivateAfter), 10) + "ns"
	}
	for i := range d.commands {
		t.Commands = append(t.Commands, commandText{d.commands[i].name, d.commands[i].internal})
	}
	for i := range d.queries {
		t.Queries = append(t.Queries, nameText{d.queries[i].name})
	}
	for i := range d.events {
		t.Events = append(t.Events, eventTypeText{d.events[i].name})
	}
	return t
}
