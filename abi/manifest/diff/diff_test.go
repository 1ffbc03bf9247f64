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
			"a/: the module does not serve the type any more !", "c/: the type is new"}},
		{"kind", of("a", ""), `{"name":"a","kind":"durable-state","encoding":"bytes","shardKey":{"until":"-"},"singleton":false}`, []string{
			"a/: its kind was event-sourced and is durable-state !", "a/: its encoding was json and is bytes !", "a/: its shard key is another !"}},
		{"names", of("a", `,"commands":[{"name":"x"},{"name":"y"}],"queries":[{"name":"q"}]`), of("a", `,"commands":[{"name":"y","internal":true},{"name":"z"}]`), []string{
			"a/command x: it is gone !", "a/command y: internal was false and is true !", "a/command z: it is new", "a/: names of kind query are not listed any more"}},
		{"lists", of("a", ""), of("a", `,"commands":[],"events":[{"type":"e"}]`), []string{
			"a/: names of kind command are listed now, and others are refused !", "a/event e: it is new"}},
		{"events", of("a", `,"events":[{"type":"e"},{"type":"f"}]`), of("a", `,"events":[{"type":"f"},{"type":"g"}]`), []string{
			"a/event e: it is gone !", "a/event g: it is new"}},
		{"upcast", of("a", `,"events":[{"type":"e"}]`), of("a", `,"events":[{"type":"e.v2"},{"type":"e","upcastTo":"e.v2"}]`), []string{
			"a/event e: it is read as e.v2, and not emitted any more", "a/event e.v2: it is new"}},
		{"states", state(""), state(`,"stateVersion":3,"readsStates":[{"version":2}]`), []string{
			"a/state: its version was 0 and is 3", "a/state: version 1 is not read !"}},
		{"migrated", state(`,"stateVersion":2,"readsStates":[{"version":1}]`), state(`,"stateVersion":3,"readsStates":[{"version":1},{"version":2}]`), []string{
			"a/state: its version was 2 and is 3"}},
		{"dropped", state(`,"stateVersion":2,"readsStates":[{"version":1}]`), state(`,"stateVersion":2`), []string{"a/state: version 1 is not read !"}},
		{"no events", of("a", `,"events":[{"type":"e"}]`), of("a", ""), []string{"a/: types of events are not listed any more"}},
	} {
		if got := lines(diff.Of(parse(t, tt.old), parse(t, tt.now))); !slices.Equal(got, append([]string{}, tt.want...)) {
			t.Errorf("%s:\n%q\nwant\n%q", tt.name, got, tt.want)
		}
	}
}

// TestChangesOfSchemas checks that a change is breaking depending on who reads
// the value: the module reads the payload of a command, the caller reads a
// reply, and both read events.
func TestChangesOfSchemas(t *testing.T) {
	const open = `{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"required":["n"]}`
	for _, tt := range []struct {
		name, old, now        string
		command, reply, event []string // reported changes, with "!" if breaking
	}{
		{"same", open, open, nil, nil, nil},
		{"field gone", open, `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
			[]string{".s: the field is gone !"}, []string{".s: the field is gone !"}, []string{".s: the field is gone !"}},
		{"field new", `{"properties":{}}`, `{"properties":{"a":{}}}`,
			[]string{".a: the field is new"}, []string{".a: the field is new"}, []string{".a: the field is new"}},
		{"narrowed", `{"type":["string","null"]}`, `{"type":"string"}`,
			[]string{": it does not allow the type null any more !"}, []string{": it does not allow the type null any more"}, []string{": it does not allow the type null any more !"}},
		{"widened", `{"type":"string"}`, `{"type":["string","null"]}`,
			[]string{": it allows the type null too"}, []string{": it allows the type null too !"}, []string{": it allows the type null too !"}},
		{"integer to number", `{"type":"integer"}`, `{"type":"number"}`,
			[]string{": it allows the type number too"}, []string{": it allows the type number too !"}, []string{": it allows the type number too !"}},
		{"required added", `{"properties":{"a":{}}}`, `{"properties":{"a":{}},"required":["a"]}`,
			[]string{".a: the field is required !"}, []string{".a: the field is required"}, []string{".a: the field is required !"}},
		{"required taken", `{"properties":{"a":{}},"required":["a"]}`, `{"properties":{"a":{}}}`,
			[]string{".a: the field is not required any more"}, []string{".a: the field is not required any more !"}, []string{".a: the field is not required any more !"}},
		{"values", `{"enum":["a","b"]}`, `{"enum":["b","c"]}`,
			[]string{`: it does not allow the value "a" any more !`, `: it allows the value "c" too`}, []string{`: it does not allow the value "a" any more`, `: it allows the value "c" too !`}, []string{`: it does not allow the value "a" any more !`, `: it allows the value "c" too !`}},
		{"in lists, by reference", `{"type":"array","items":{"$ref":"#/$defs/old"}}`, `{"type":"array","items":{"$ref":"#/$defs/new"}}`,
			[]string{"[].x: the field is required !"}, []string{"[].x: the field is required"}, []string{"[].x: the field is required !"}},
		{"closed", `{"type":"object"}`, `{"type":"object","additionalProperties":false}`,
			[]string{": other fields are refused !"}, []string{": other fields are refused"}, []string{": other fields are refused !"}},
		{"remarks", `{"title":"a"}`, `{"title":"b"}`,
			[]string{`: title was "a" and is "b"`}, []string{`: title was "a" and is "b"`}, []string{`: title was "a" and is "b"`}},
		{"other keywords", `{"maxLength":9}`, `{"maxLength":8}`,
			[]string{": maxLength was 9 and is 8 !"}, []string{": maxLength was 9 and is 8 !"}, []string{": maxLength was 9 and is 8 !"}},
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
