package c

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/guests"
)

// forms is a guest whose events have earlier forms; its table of events is
// EVENTS.
const forms = `#pragma clang diagnostic ignored "-Wunused"
#include "hostd.h"

typedef struct { int64_t n; hostd_text all, raw; } state;
typedef struct { hostd_text a; } one;
typedef struct { hostd_text a, b; } two;
typedef struct { hostd_text b, raw; int64_t n; } three;

static const hostd_field state_fields[] = {HOSTD_I64(state, n), HOSTD_TEXT(state, all), HOSTD_RAW(state, raw), HOSTD_END};
static const hostd_field one_fields[] = {HOSTD_TEXT(one, a), HOSTD_END};
static const hostd_field two_fields[] = {HOSTD_TEXT(two, a), HOSTD_TEXT(two, b), HOSTD_END};
static const hostd_field three_fields[] = {HOSTD_TEXT(three, b), HOSTD_RAW(three, raw), HOSTD_I64(three, n), HOSTD_END};

static void up_one(void *made, const void *old) { *(two *)made = (two){((const one *)old)->a, HOSTD_TEXT_OF("\"new\"")}; }
static void up_two(void *made, const void *old) {
  ((three *)made)->b = ((const two *)old)->b;
  ((three *)made)->n = ((const two *)old)->a.length;
}
static void evolve(void *s, const void *event) {
  const three *e = event;
  ((state *)s)->n += e->n;
  hostd_keep(&((state *)s)->all, e->b);
  hostd_keep(&((state *)s)->raw, e->raw);
}
static void emptied(void *s, const void *event) { (void)event, ((state *)s)->n = 0; }

static void emit(hostd_call *c, void *s, const void *command) {
  hostd_text given = ((const one *)command)->a;
  (void)s;
  if (hostd_is(given, "an older form")) hostd_emit(c, "made", command);
  else hostd_emit(c, "made.v3", &(three){given, HOSTD_TEXT_OF("{}"), 1});
}
static const hostd_command commands[] = {{"emit", emit, one_fields}, {0}};
static void look(hostd_call *c, const void *s, const void *query) { (void)query, hostd_reply(c, s); }
static const hostd_query queries[] = {{"look", look, NULL, state_fields}, {0}};
static const hostd_event events[] = {EVENTS, {0}};
static const hostd_type types[] = {{.name = "forms", .state_size = sizeof(state), .fields = state_fields, .events = events, .commands = commands, .queries = queries}, {0}};
HOSTD_SERVE("forms", "1.0.0", types)
`

const formsOfToday = `{"made.v3", evolve, three_fields}, {"made", NULL, one_fields, "made.v2", up_one}, {"emptied", emptied}, ` +
	`{"made.v2", NULL, two_fields, "made.v3", up_two}`

func formsGuest(t *testing.T, events string) *guest.Module {
	t.Helper()
	return builder.Module(t, formsProject(t, events))
}

func formsProject(t *testing.T, events string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.c"), []byte(strings.Replace(forms, "EVENTS", events, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An event is upcast through all later forms, for the state and for readers.
// Other events are unchanged, and an unreadable event is a fault.
func TestEventIsUpcastThroughAllVersions(t *testing.T) {
	module := formsGuest(t, formsOfToday)
	guests.Conforms(t, module)
	for _, e := range module.Manifest().EntityTypes[0].Events {
		if older := e.Type == "made" || e.Type == "made.v2"; older && e.UpcastTo != "made.v3" || !older && e.UpcastTo != "" {
			t.Errorf("the manifest has %s upcast to %q", e.Type, e.UpcastTo)
		}
	}
	instance := func() *guest.Instance {
		g, err := module.Instantiate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		return g
	}
	for _, e := range []struct{ name, payload, readersType, readers, state string }{
		{"made", `{"a":"four"}`, "made.v3", `{"b":"\"new\"","raw":null,"n":4}`, `{"n":4,"all":"\"new\"","raw":null}`},
		{"made.v2", `{"a":"ab","b":"c\n"}`, "made.v3", `{"b":"c\n","raw":null,"n":2}`, `{"n":2,"all":"c\n","raw":null}`},
		{"made.v2", ``, "made.v3", `{"b":"","raw":null,"n":0}`, `{"n":0,"all":"","raw":null}`},
		{"made.v3", ` {"n":7, "raw":[1]}`, "made.v3", ` {"n":7, "raw":[1]}`, `{"n":7,"all":"","raw":[1]}`},
		{"emptied", ``, "emptied", ``, `{"n":0,"all":"","raw":null}`},
	} {
		g := instance()
		input := abi.AppendInputEvent(nil, 1, 1, e.name, []byte(e.payload))
		answer, err := g.Upcast(0, input)
		if err != nil {
			t.Fatal(err)
		}
		name, payload, err := abi.UpcastEvent(bytes.Clone(answer), 1000)
		if err != nil || string(name) != e.readersType || string(payload) != e.readers {
			t.Errorf("readers get of %s %s: %s %s, %v", e.name, e.payload, name, payload, err)
		}
		if status, err := g.Load(0, 0, abi.AppendEntityID(nil, "id")); status != 0 || err != nil {
			t.Fatal(status, err)
		}
		if err := g.Apply(0, input); err != nil {
			t.Fatal(err)
		}
		if state, err := g.Snapshot(0); err != nil || string(state) != e.state {
			t.Errorf("the state after %s %s: %s, %v", e.name, e.payload, state, err)
		}
	}
	for _, payload := range []string{`{"a":5}`, `[`, `[]`} {
		if answer, err := instance().Upcast(0, abi.AppendInputEvent(nil, 1, 1, "made", []byte(payload))); err == nil {
			t.Errorf("made with %s is upcast to %q", payload, answer)
		}
	}
	g := instance()
	if status, err := g.Load(0, 0, abi.AppendEntityID(nil, "id")); status != 0 || err != nil {
		t.Fatal(status, err)
	}
	if answer, err := g.Handle(0, abi.AppendPayload(abi.AppendName(nil, "emit"), []byte(`{"a":"an older form"}`)), guest.Env{}); err == nil {
		t.Errorf("an event of an older form is emitted: %q", answer)
	}
}

// An inconsistent table of events is reported when the module is described.
func TestInconsistentUpcastsAreRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("short: compilers of other languages run in the long mode")
	}
	const evolves = `{"a", evolve, three_fields}, `
	for _, wrong := range []struct{ events, want string }{
		{evolves + `{"b", evolve, one_fields, "a", up_one}`, "needs upcast and must not have evolve"},
		{evolves + `{"b", NULL, one_fields, "a"}`, "needs upcast and must not have evolve"},
		{evolves + `{"b", NULL, one_fields, "c", up_one}`, "must be upcast to a declared event"},
		{`{"a", NULL, one_fields, "b", up_one}, {"b", NULL, one_fields, "a", up_one}`, "must be upcast to a declared event"},
		{`{"a", NULL, one_fields}`, "needs evolve and must not have upcast"},
		{`{"a", evolve, one_fields, NULL, up_one}`, "needs evolve and must not have upcast"},
	} {
		out := filepath.Join(t.TempDir(), "guest.wasm")
		var said bytes.Buffer
		err := builder.Build(t.Context(), formsProject(t, wrong.events), out, &said)
		if errors.Is(err, builder.Missing) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, said.String())
		}
		wasm, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		e, err := guest.New(t.Context(), guest.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Compile(t.Context(), sha256.Sum256(wasm), wasm)
		if err == nil {
			t.Errorf("%s is taken", wrong.events)
			err = m.Close()
		}
		if !strings.Contains(said.String(), wrong.want) {
			t.Errorf("%s: %v\n%s", wrong.events, err, said.String())
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
