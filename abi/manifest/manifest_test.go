package manifest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files under testdata")

const full = `{"abi":1,"name":"counter","version":"1.2.0","entityTypes":[{"name":"counter","kind":"event-sourced",` +
	`"encoding":"json","commands":[{"name":"add","schema":{"b":1,"a":[2]},"reply":true},{"name":"step","internal":true,"since":"1.2"}],"queries":[{"name":"total"}],"events":[{"type":"added","since":"1.1"}],` +
	`"snapshotEvery":100,"passivateAfter":"2m","alwaysOn":true,"shardKey":{"group":"customer","until":"-"},` +
	`"sends":["account","audit-*"],"acceptsFrom":["*"],"colour":"blue"},` +
	`{"name":"doc","kind":"durable-state","encoding":"bytes","commands":[],"sends":[],"acceptsFrom":[],"stateVersion":3,"readsStates":[{"version":1,"schema":{"b":1,"a":[2]},"since":"1"},{"version":2}]},` +
	`{"name":"log","kind":"event-sourced","encoding":"bytes","retainSnapshots":3,"retainEvents":"snapshots"},` +
	`{"name":"tail","kind":"event-sourced","encoding":"bytes","retainEvents":500},` +
	`{"name":"hub","kind":"transient","encoding":"bytes","singleton":true}],"$defs":{"doc":{"type":"object"}},"author":null,"licence":"MIT"}`

func TestRoundTripKeepsUnknownMembers(t *testing.T) {
	m, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	counter := m.EntityTypes[0]
	if counter.PassivateAfter != 2*time.Minute || counter.SnapshotEvery != 100 || !counter.AlwaysOn ||
		counter.Kind != EventSourced || counter.Encoding != JSON || counter.Events[0].Type != "added" {
		t.Errorf("%+v", counter)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != full {
		t.Errorf("got  %s\nwant %s", text, full)
	}
}

// TestEarlierNameOfAlwaysOn: stored modules of earlier releases call the member
// rememberEntities. The member is read with the same meaning, and is written
// again under the earlier name.
func TestEarlierNameOfAlwaysOn(t *testing.T) {
	for member, want := range map[string]struct{ on, earlier bool }{
		``: {}, `,"alwaysOn":true`: {on: true}, `,"rememberEntities":true`: {on: true, earlier: true},
	} {
		text := `{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"event-sourced","encoding":"json"` + member + `}]}`
		m, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.EntityTypes[0]; got.AlwaysOn != want.on || got.EarlierAlwaysOn != want.earlier {
			t.Errorf("%q: always-on %v, by the earlier name %v", member, got.AlwaysOn, got.EarlierAlwaysOn)
		}
		if again, err := json.Marshal(m); err != nil || string(again) != text {
			t.Errorf("written again: %s, %v", again, err)
		}
	}
}

func TestNilListAllowsAnyName(t *testing.T) {
	m, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	counter, index, ok := m.Type("counter")
	if !ok || index != 0 || !counter.HasCommand("add") || counter.HasCommand("total") || !counter.HasQuery("total") {
		t.Errorf("counter: %d %v %+v", index, ok, counter)
	}
	if !counter.IsInternal("step") || counter.IsInternal("add") || counter.IsInternal("none") {
		t.Errorf("internal commands: %+v", counter.Commands)
	}
	doc, index, ok := m.Type("doc")
	if !ok || index != 1 || doc.HasCommand("any") || !doc.HasQuery("any") {
		t.Errorf("doc: an empty list allows nothing, no list allows all: %d %v %+v", index, ok, doc)
	}
	if doc.Sends == nil || doc.AcceptsFrom == nil || len(counter.Sends) != 2 {
		t.Errorf("whom they send to: %q %q %q", counter.Sends, doc.Sends, doc.AcceptsFrom)
	}
	if _, _, ok := m.Type("none"); ok {
		t.Error("found a type that is not there")
	}
}

func TestDurationsUseShortestText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		2 * time.Minute: "2m", 90 * time.Second: "1m30s", 3 * time.Hour: "3h", 1500 * time.Millisecond: "1.5s",
		time.Hour + time.Second: "1h0m1s", 61 * time.Minute: "1h1m", 30 * time.Second: "30s",
	} {
		got := durationText(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v: %q, want %q (%v)", d, got, want, err)
		}
	}
}

func TestFaultsAsText(t *testing.T) {
	entity := func(members string) string {
		return `{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"event-sourced","encoding":"json"` + members + `}]}`
	}
	durable := func(members string) string {
		return `{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"durable-state","encoding":"json"` + members + `}]}`
	}
	many := func(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	cases := []string{
		``, `{`, `[]`, `null`, `{"abi":1} x`, "{\"name\":\"\xff\"}",
		`{}`, `{"abi":"1"}`, `{"abi":1.5}`, `{"abi":null}`, `{"abi":2,"name":"m","entityTypes":[]}`,
		`{"abi":1}`, `{"abi":1,"name":7}`, `{"abi":1,"name":"","entityTypes":[]}`, `{"abi":1,"name":"a\nb","entityTypes":[]}`,
		`{"abi":1,"name":"` + strings.Repeat("x", MaxNameBytes+1) + `","entityTypes":[]}`,
		`{"abi":1,"name":"m","version":"` + strings.Repeat("1", MaxVersionBytes+1) + `","entityTypes":[]}`,
		`{"abi":1,"name":"m"}`, `{"abi":1,"name":"m","entityTypes":{}}`, `{"abi":1,"name":"m","entityTypes":[]}`,
		`{"abi":1,"name":"m","entityTypes":[7]}`, `{"abi":1,"name":"m","entityTypes":[{}]}`,
		`{"abi":1,"name":"m","entityTypes":[` + many(`{"name":"t","kind":"event-sourced","encoding":"json"}`, MaxEntityTypes+1) + `]}`,
		`{"abi":1,"name":"m","entityTypes":[` + many(`{"name":"t","kind":"event-sourced","encoding":"json"}`, 2) + `]}`,
		`{"abi":1,"name":"m","entityTypes":[{"name":"T","kind":"event-sourced","encoding":"json"}]}`,
		`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"crdt","encoding":"json"}]}`,
		`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"event-sourced","encoding":"xml"}]}`,
		entity(`,"commands":{}`), entity(`,"commands":["add"]`), entity(`,"commands":[{}]`), entity(`,"commands":[{"name":""}]`),
		entity(`,"commands":[{"name":"add"},{"name":"add"}]`), entity(`,"queries":[{"name":"a\u0000"}]`),
		entity(`,"events":[{"name":"added"}]`), entity(`,"events":[{"type":"a"},{"type":"a"}]`), entity(`,"events":null`),
		entity(`,"events":[{"type":"a","upcastTo":"b"}]`), entity(`,"events":[{"type":"a","upcastTo":7}]`), entity(`,"events":[{"type":"a","upcastTo":"b"},{"type":"b","upcastTo":"a"}]`),
		entity(`,"commands":[` + many(`{"name":"x"}`, MaxNames+1) + `]`),
		entity(`,"commands":[{"name":"a","rejections":"b"}]`), entity(`,"commands":[{"name":"a","rejections":["b",""]}]`), entity(`,"commands":[{"name":"a","rejections":["b","b"]}]`),
		`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"transient","encoding":"json","readsStates":[]}]}`, durable(`,"readsStates":{}`), durable(`,"readsStates":[1]`), durable(`,"readsStates":[{}]`), durable(`,"readsStates":[{"version":0}]`), durable(`,"readsStates":[{"version":1}]`),
		durable(`,"stateVersion":2,"readsStates":[{"version":2}]`), durable(`,"stateVersion":2,"readsStates":[{"version":1},{"version":1}]`), durable(`,"readsStates":[` + many(`{"version":2}`, MaxReadsStates+1) + `]`),
		entity(`,"stateVersion":-1`), entity(`,"stateVersion":1000000001`), entity(`,"validate":"no"`), `{"abi":1,"name":"m","entityTypes":[],"$defs":[]}`, entity(`,"snapshotEvery":-1`), entity(`,"snapshotEvery":1000001`), entity(`,"snapshotEvery":"100"`),
		entity(`,"passivateAfter":120`), entity(`,"passivateAfter":"2 minutes"`), entity(`,"passivateAfter":"-2m"`), entity(`,"passivateAfter":"721h"`),
		entity(`,"alwaysOn":"yes"`), entity(`,"rememberEntities":"yes"`), entity(`,"alwaysOn":true,"rememberEntities":true`), entity(`,"singleton":"one"`),
		entity(`,"retainSnapshots":5`), entity(`,"retainEvents":"some"`), entity(`,"retainEvents":0`), entity(`,"retainEvents":1.5`), entity(`,"retainEvents":1000000001`), entity(`,"retainEvents":true`),
		`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"transient","encoding":"json","alwaysOn":true}]}`,
		entity(`,"shardKey":"-"`), entity(`,"shardKey":{}`), entity(`,"shardKey":{"until":""}`), entity(`,"shardKey":{"until":7}`),
		entity(`,"shardKey":{"until":"-","from":"+"}`), entity(`,"shardKey":{"group":"A"}`), entity(`,"shardKey":{"until":"\u0000"}`),
		entity(`,"shardKey":{"until":"` + strings.Repeat("-", MaxUntilBytes+1) + `"}`),
		entity(`,"sends":"account"`), entity(`,"sends":[7]`), entity(`,"sends":null`), entity(`,"sends":[null]`), entity(`,"sends":["A"]`), entity(`,"sends":["a*b"]`), entity(`,"sends":["a**"]`), entity(`,"acceptsFrom":["a","a"]`),
		entity(`,"acceptsFrom":["` + strings.Repeat("x", 65) + `*"]`), entity(`,"acceptsFrom":[` + many(`"x"`, 65) + `]`),
	}
	var text strings.Builder
	for _, c := range cases {
		m, err := Parse([]byte(c))
		var fault *Error
		if !errors.As(err, &fault) || !errors.Is(err, ErrInvalid) {
			t.Fatalf("%s: %v %v, want an *Error", c, m, err)
		}
		if len(c) > 130 {
			c = c[:60] + " ... " + c[len(c)-60:]
		}
		fmt.Fprintf(&text, "%s\n  %v\n", strings.ToValidUTF8(c, "?"), err)
	}
	golden(t, "testdata/faults.txt", text.String())
}

func TestGoldenManifest(t *testing.T) {
	m := &Manifest{ABI: 1, Name: "counter", Version: "1.2.0", EntityTypes: []EntityType{{
		Name: "counter", Kind: EventSourced, Encoding: JSON,
		Commands: []Named{{Name: "add"}, {Name: "reset"}}, Queries: []Named{{Name: "total"}},
		Events:        []EventType{{Type: "added"}, {Type: "reset"}},
		SnapshotEvery: 100, PassivateAfter: 2 * time.Minute,
	}}}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/counter.json", string(text)+"\n")
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; -rewrite to accept\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// FuzzParse checks that an accepted manifest is written and parsed again as the
// same bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"t","kind":"durable-state","encoding":"bytes","passivateAfter":"1h"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v", err)
			}
			return
		}
		first, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(first) != string(second) {
			t.Fatalf("%s\n%s\n%v", first, second, err)
		}
	})
}

// TestStateEventsNameVersions checks that the first version uses the name
// without a suffix.
func TestStateEventsNameVersions(t *testing.T) {
	for name, version := range map[string]int{"state": 1, "state.v2": 2, "state.v1000000000": 1000000000} {
		if got := StateEventVersion(name); got != version || StateEvent(version) != name {
			t.Errorf("%s is of version %d, and %d is %s", name, got, version, StateEvent(version))
		}
	}
	for _, name := range []string{"", "added", "state.v", "state.v1", "state.v0", "state.v-2", "state.v02", "state.v+2", "state.v2x", "state.v99999999999999999999"} {
		if got := StateEventVersion(name); got != 0 {
			t.Errorf("%q is of version %d", name, got)
		}
	}
}

// TestTypesReadVersions checks that a type reads states of its own version and of
// the versions that it lists, and that the guest receives the version of a state
// only if it is not the type's own.
func TestTypesReadVersions(t *testing.T) {
	about := EntityType{Kind: DurableState, StateVersion: 3, ReadsStates: []StateForm{{Version: 1}}}
	s := about.States()
	if s.Version() != 3 || s.Event() != "state.v3" {
		t.Errorf("it writes %d as %s", s.Version(), s.Event())
	}
	for version, want := range map[int]struct {
		unread bool
		told   uint64
	}{0: {}, 1: {told: 1}, 2: {unread: true}, 3: {}, 4: {unread: true}} {
		err := s.Check(version)
		var unread *UnreadStateError
		if errors.As(err, &unread) != want.unread || want.unread && unread.Version != version {
			t.Errorf("version %d: %v", version, err)
		}
		if err == nil && s.InputVersion(version) != want.told {
			t.Errorf("of version %d the guest is told %d", version, s.InputVersion(version))
		}
	}
	var none States
	if none.Version() != 1 || none.Event() != "state" || none.Check(1) != nil || none.InputVersion(1) != 0 || none.Check(2) == nil {
		t.Error("a type that numbers none is not of version 1")
	}
}
