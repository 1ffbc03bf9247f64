package diff_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/manifest/diff"
)

func parse(t *testing.T, types string) *manifest.Manifest {
	t.Helper()
	m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[` + types + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// of returns a type with additional members.
func of(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"kind":"event-sourced","encoding":"json"%s}`, name, more)
}

// state returns a durable-state type with additional members.
func state(more string) string {
	return fmt.Sprintf(`{"name":"a","kind":"durable-state","encoding":"json"%s}`, more)
}

func lines(changes []diff.Change) []string {
	out := []string{}
	for _, c := range changes {
		line := c.EntityType + "/" + c.Where + ": " + c.What
		if c.Breaking {
			line += " !"
		}
		out = append(out, line)
	}
	return out
}

// TestChangesOfTypes checks that removals are breaking and additions are not.
func TestChangesOfTypes(t *testing.T) {
	for _, tt := range []struct {
		name, old, now string
		want           []string
	}{
		{"nothing", of("a", `,"commands":[{"name":"x"}]`), of("a", `,"commands":[{"name":"x"}]`), nil},
		{"types", of("a", "") + "," + of("b", ""), of("b", "") + "," + of("c", ""), []string{
			"a/: the module no longer serves the type !", "c/: added the type"}},
		{"kind", of("a", ""), `{"name":"a","kind":"durable-state","encoding":"bytes","shardKey":{"until":"-"},"singleton":false}`, []string{
			"a/: its kind changed from event-sourced to durable-state !", "a/: its encoding changed from json to bytes !", "a/: its shard key changed !"}},
		{"names", of("a", `,"commands":[{"name":"x"},{"name":"y"}],"queries":[{"name":"q"}]`), of("a", `,"commands":[{"name":"y","internal":true},{"name":"z"}]`), []string{
			"a/command x: removed !", "a/command y: internal changed from false to true !", "a/command z: added", "a/: no longer lists its names of kind query"}},
		{"lists", of("a", ""), of("a", `,"commands":[],"events":[{"type":"e"}]`), []string{
			"a/: now lists its names of kind command and rejects others !", "a/event e: added"}},
		{"events", of("a", `,"events":[{"type":"e"},{"type":"f"}]`), of("a", `,"events":[{"type":"f"},{"type":"g"}]`), []string{
			"a/event e: removed !", "a/event g: added"}},
		{"upcast", of("a", `,"events":[{"type":"e"}]`), of("a", `,"events":[{"type":"e.v2"},{"type":"e","upcastTo":"e.v2"}]`), []string{
			"a/event e: is now upcast to e.v2 and no longer emitted", "a/event e.v2: added"}},
		{"states", state(""), state(`,"stateVersion":3,"readsStates":[{"version":2}]`), []string{
			"a/state: its version changed from 0 to 3", "a/state: no longer reads version 1 !"}},
		{"migrated", state(`,"stateVersion":2,"readsStates":[{"version":1}]`), state(`,"stateVersion":3,"readsStates":[{"version":1},{"version":2}]`), []string{
			"a/state: its version changed from 2 to 3"}},
		{"dropped", state(`,"stateVersion":2,"readsStates":[{"version":1}]`), state(`,"stateVersion":2`), []string{"a/state: no longer reads version 1 !"}},
		{"no events", of("a", `,"events":[{"type":"e"}]`), of("a", ""), []string{"a/: no longer lists its event types"}},
	} {
		if got := lines(diff.Of(parse(t, tt.old), parse(t, tt.now))); !slices.Equal(got, append([]string{}, tt.want...)) {
			t.Errorf("%s:\n%q\nwant\n%q", tt.name, got, tt.want)
		}
	}
}

// TestChangesOfSchemas checks that a change is breaking depending on the reader
// of the value: the module reads the payload of a command, the caller reads a
// reply, and both read events.
func TestChangesOfSchemas(t *testing.T) {
	const open = `{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"required":["n"]}`
	for _, tt := range []struct {
		name, old, now        string
		command, reply, event []string // reported changes, with "!" if breaking
	}{
		{"same", open, open, nil, nil, nil},
		{"field gone", open, `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
			[]string{".s: removed the field !"}, []string{".s: removed the field !"}, []string{".s: removed the field !"}},
		{"field new", `{"properties":{}}`, `{"properties":{"a":{}}}`,
			[]string{".a: added the field"}, []string{".a: added the field"}, []string{".a: added the field"}},
		{"narrowed", `{"type":["string","null"]}`, `{"type":"string"}`,
			[]string{": no longer allows the type null !"}, []string{": no longer allows the type null"}, []string{": no longer allows the type null !"}},
		{"widened", `{"type":"string"}`, `{"type":["string","null"]}`,
			[]string{": now also allows the type null"}, []string{": now also allows the type null !"}, []string{": now also allows the type null !"}},
		{"integer to number", `{"type":"integer"}`, `{"type":"number"}`,
			[]string{": now also allows the type number"}, []string{": now also allows the type number !"}, []string{": now also allows the type number !"}},
		{"required added", `{"properties":{"a":{}}}`, `{"properties":{"a":{}},"required":["a"]}`,
			[]string{".a: the field is now required !"}, []string{".a: the field is now required"}, []string{".a: the field is now required !"}},
		{"required taken", `{"properties":{"a":{}},"required":["a"]}`, `{"properties":{"a":{}}}`,
			[]string{".a: the field is no longer required"}, []string{".a: the field is no longer required !"}, []string{".a: the field is no longer required !"}},
		{"values", `{"enum":["a","b"]}`, `{"enum":["b","c"]}`,
			[]string{`: no longer allows the value "a" !`, `: now also allows the value "c"`}, []string{`: no longer allows the value "a"`, `: now also allows the value "c" !`}, []string{`: no longer allows the value "a" !`, `: now also allows the value "c" !`}},
		{"in lists, by reference", `{"type":"array","items":{"$ref":"#/$defs/old"}}`, `{"type":"array","items":{"$ref":"#/$defs/new"}}`,
			[]string{"[].x: the field is now required !"}, []string{"[].x: the field is now required"}, []string{"[].x: the field is now required !"}},
		{"closed", `{"type":"object"}`, `{"type":"object","additionalProperties":false}`,
			[]string{": other fields are now refused !"}, []string{": other fields are now refused"}, []string{": other fields are now refused !"}},
		{"remarks", `{"title":"a"}`, `{"title":"b"}`,
			[]string{`: title changed from "a" to "b"`}, []string{`: title changed from "a" to "b"`}, []string{`: title changed from "a" to "b"`}},
		{"other keywords", `{"maxLength":9}`, `{"maxLength":8}`,
			[]string{": maxLength changed from 9 to 8 !"}, []string{": maxLength changed from 9 to 8 !"}, []string{": maxLength changed from 9 to 8 !"}},
	} {
		manifests := [2]*manifest.Manifest{}
		for i, s := range []string{tt.old, tt.now} {
			m := parse(t, of("a", fmt.Sprintf(`,"commands":[{"name":"c","schema":%s},{"name":"r","reply":%s}],"events":[{"type":"e","schema":%s}]`, s, s, s)))
			m.Defs = map[string]json.RawMessage{
				"old": json.RawMessage(`{"properties":{"x":{},"more":{"$ref":"#/$defs/old"}}}`),
				"new": json.RawMessage(`{"properties":{"x":{},"more":{"$ref":"#/$defs/new"}},"required":["x"]}`),
			}
			manifests[i] = m
		}
		want := []string{}
		for _, s := range tt.command {
			want = append(want, "a/command c"+s)
		}
		for _, s := range tt.reply {
			want = append(want, "a/command r reply"+s)
		}
		for _, s := range tt.event {
			want = append(want, "a/event e"+s)
		}
		if got := lines(diff.Of(manifests[0], manifests[1])); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant\n%q", tt.name, got, want)
		}
	}
}
