package guests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/host/guest"
)

// Rest is the directory of a guest in Go that uses the SDK features that the
// cart does not use.
const Rest = "tests/support/guests/testdata/rest"

// RestsAreEqual compares Rest with the same guest in another language.
func RestsAreEqual(t *testing.T, goRest, other *guest.Module) {
	t.Helper()
	if one, two := optionsOf(t, goRest), optionsOf(t, other); one != two {
		t.Errorf("manifests differ:\n%s\n%s", one, two)
	}
	r := &restRun{t: t}
	for i, m := range []*guest.Module{goRest, other} {
		g, err := m.Instantiate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		r.guests[i] = g
	}
	const id = `id "1"`
	r.load(0, 5, abi.AppendEntityID(nil, id))
	r.states(5)
	client, timer := abi.Source{Kind: abi.SourceClient}, abi.Source{Kind: abi.SourceTimer}
	entity := abi.Source{Kind: abi.SourceEntity, EntityType: []byte("other"), EntityID: []byte("ö")}
	principal := abi.AppendPrincipal(nil, "token", "ann", "ops", "dev")
	r.handle(5, "tell", "", client, principal)
	r.handle(5, "tell", "", client, abi.AppendPrincipal(nil, "anonymous", ""))
	r.handle(5, "tell", "", timer, abi.AppendDue(nil, 123456789))
	r.handle(5, "tell", "", entity, nil)
	settings := abi.AppendSetting(abi.AppendSetting(nil, "limits", "no"), "", "none")
	settings = abi.AppendSetting(abi.AppendSetting(settings, "limit", "för 3"), "limit.more", "4")
	settings = abi.AppendSettings(nil, settings)
	r.handle(5, "tell", "", client, settings)
	for _, name := range []string{"limit", "other"} {
		r.handle(5, "tell", "", timer, abi.AppendSettings(nil, abi.AppendSetting(nil, name, "")))
	}
	r.handle(5, "tell", "", client, abi.AppendSettings(nil, abi.AppendSetting(nil, "other", "5")))
	r.query(5, "look", "", settings)
	r.handle(5, "place", `{"count":2,"item":"\t<\"ü\\\u0001\u007f/>"}`, client, nil)
	r.handle(5, "place", `{"count":"-9007199254740993","item":""}`, client, nil)
	for _, command := range []string{"ask", "plan", "leave", "end", "absent", "place"} {
		r.handle(5, command, "", client, nil)
	}
	for _, payload := range []string{"", `{"n":0}`, `{"n":7}`, `{"n":"x"}`, `{"n":9223372036854775807}`, `{"n":9223372036854775808}`} {
		r.query(5, "look", payload, principal)
	}
	r.query(5, "absent", "", nil)

	// Load an entity with a larger handle, and apply events of both versions.
	r.load(0, 900, abi.AppendEntityID(nil, id))
	events := abi.AppendInputEvent(nil, 1, 1, "placed", []byte(`{"item":"old"}`))
	events = abi.AppendInputEvent(events, 2, 2, "placed.v2", []byte(`{"count":5,"item":"new"}`))
	events = abi.AppendInputEvent(events, 3, 3, "placed", []byte(`{"item":"old again"}`))
	r.apply(900, events)
	r.states(900)
	r.states(5)
	r.load(0, 900, abi.AppendSnapshot(abi.AppendEntityID(nil, id), []byte(`{"items":"7","last":"x"}`)))
	r.states(900)
	for _, snapshot := range []string{`{"items":"x"}`, `[`, `{"items":1}x`} {
		r.load(0, 901, abi.AppendSnapshot(abi.AppendEntityID(nil, id), []byte(snapshot)))
	}
	r.upcasts()
	r.apply(900, abi.AppendInputEvent(nil, 4, 4, "unheard", nil))

	r.load(1, 6, abi.AppendEntityID(nil, "singleton"))
	for _, text := range []string{"a", "a", "longer than ten", "b", ""} {
		r.handle(6, "set", `{"text":"`+text+`"}`, client, nil)
		r.states(6)
	}
	r.drafts()
	restConforms(t, other)
}

// drafts loads states of all versions, and invalid states.
func (r *restRun) drafts() {
	r.t.Helper()
	const draft = 7
	r.load(2, draft, abi.AppendEntityID(nil, "new"))
	r.states(draft)
	for _, s := range []struct {
		version uint64
		state   string
	}{
		{1, `{"text":"ö"}`}, {1, `{}`}, {2, `{"count":4,"text":"two"}`}, {3, `{"count":7,"first":"three"}`}, {0, `{"count":8,"first":"four"}`},
		{1, `{"text":5}`}, {2, `{"count":"x"}`}, {2, `[`}, {4, `{"count":7,"first":"newer"}`}, {1 << 33, `{}`}, {1, `{"count":9,"first":"x","text":"last"}`},
	} {
		input := abi.AppendSequence(abi.AppendSnapshot(abi.AppendEntityID(nil, "old"), []byte(s.state)), 1)
		if s.version != 0 {
			input = abi.AppendStateVersion(input, s.version)
		}
		r.load(2, draft, input)
		r.states(draft)
		for _, text := range []string{"longer than ten", "b", "b"} {
			r.handle(draft, "write", `{"text":"`+text+`"}`, abi.Source{Kind: abi.SourceClient}, nil)
		}
	}
}

// upcasts requests the upcast of events and states of all versions, as readers
// do.
func (r *restRun) upcasts() {
	r.t.Helper()
	for _, e := range []struct {
		typ           uint32
		name, payload string
	}{
		{0, "placed", `{"item":"old\n"}`}, {0, "placed.v2", ` {"item":"new"} `}, {0, "placed.v3", `{}`}, {0, "unheard", ``}, {0, "placed", ``},
		{1, "state", `{"text":"a"}`}, {1, "state.v2", `{"text":"a"}`},
		{2, "state", `{"text":"ö"}`}, {2, "state.v2", `{"count":4,"text":"two"}`}, {2, "state.v3", `{"count":7}`}, {2, "state.v4", `{"x":1}`},
	} {
		r.both(fmt.Sprintf("%s %s for readers", e.name, e.payload), func(g *guest.Instance) (string, error) {
			answer, err := g.Upcast(e.typ, abi.AppendInputEvent(nil, 7, 8, e.name, []byte(e.payload)))
			return fmt.Sprintf("%q", answer), err
		})
	}
}

// restConforms runs the conformance suite and checks its results for older
// versions.
func restConforms(t *testing.T, module *guest.Module) {
	t.Helper()
	report, err := abitest.Run(t.Context(), Opener{module}, abitest.Options{Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		older := check.Name == "earlier-states" || check.Name == "upcast"
		if check.Status == abitest.Failed || older && check.Status != abitest.Passed {
			t.Errorf("%+v", check)
		}
	}
}

// optionsOf formats a manifest without its name and its schemas, because the
// schemas differ between SDKs.
func optionsOf(t *testing.T, m *guest.Module) string {
	t.Helper()
	text, err := json.Marshal(m.Manifest().EntityTypes)
	if err != nil {
		t.Fatal(err)
	}
	var types any
	if err := json.Unmarshal(text, &types); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(withoutSchemas(types), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func withoutSchemas(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = withoutSchemas(value[i])
		}
	case map[string]any:
		for _, name := range []string{"schema", "reply", "state"} {
			delete(value, name)
		}
		for name := range value {
			value[name] = withoutSchemas(value[name])
		}
	}
	return value
}

// restRun calls two guests with the same input.
type restRun struct {
	t        *testing.T
	guests   [2]*guest.Instance
	commands int
}

func (r *restRun) both(what string, do func(g *guest.Instance) (string, error)) {
	r.t.Helper()
	var texts [2]string
	for i, g := range r.guests {
		text, err := do(g)
		if err != nil {
			r.t.Fatalf("guest %d: %s: %v", i, what, err)
		}
		texts[i] = text
	}
	if texts[0] != texts[1] {
		r.t.Errorf("%s differs:\n%s\n%s", what, texts[0], texts[1])
	}
}

func (r *restRun) load(typ uint32, handle uint64, input []byte) {
	r.t.Helper()
	r.both(fmt.Sprintf("load of %q", input), func(g *guest.Instance) (string, error) {
		status, err := g.Load(typ, handle, input)
		return fmt.Sprint(status), err
	})
}

// apply compares whether both guests accept the events. Error texts may differ.
// A guest that rejected events is replaced, because it must not be called
// again.
func (r *restRun) apply(handle uint64, input []byte) {
	r.t.Helper()
	r.both(fmt.Sprintf("apply of %q", input), func(g *guest.Instance) (string, error) {
		if err := g.Apply(handle, input); err != nil {
			if g, err = g.Module().Instantiate(r.t.Context()); err != nil {
				return "", err
			}
			r.t.Cleanup(func() { g.Close() })
			for i := range r.guests {
				if r.guests[i].Module() == g.Module() {
					r.guests[i] = g
					break
				}
			}
			return "refused", nil
		}
		return "taken", nil
	})
}

func (r *restRun) states(handle uint64) {
	r.t.Helper()
	r.both("state", func(g *guest.Instance) (string, error) {
		state, err := g.Snapshot(handle)
		return string(state), err
	})
}

func (r *restRun) handle(handle uint64, name, payload string, source abi.Source, more []byte) {
	r.t.Helper()
	r.commands++
	input := r.request(name, payload, more)
	input = abi.AppendCommandID(input, fmt.Sprint("command-", r.commands))
	input = abi.AppendSource(abi.AppendSeed(input, 0xfedcba9876543210), source)
	mode := abi.HandleEvents
	if handle == 6 || handle == 7 {
		mode = abi.HandleState
	}
	r.both(name+" "+payload, func(g *guest.Instance) (string, error) {
		frames, err := g.Handle(handle, input, guest.Env{Now: cartStart, Seed: 1})
		return r.answer(frames, err, mode)
	})
	r.states(handle)
}

func (r *restRun) query(handle uint64, name, payload string, more []byte) {
	r.t.Helper()
	input := r.request(name, payload, more)
	r.both(name+" "+payload, func(g *guest.Instance) (string, error) {
		frames, err := g.Query(handle, input, guest.Env{Now: cartStart, Seed: 1})
		return r.answer(frames, err, abi.QueryOnly)
	})
}

// request builds an input that begins with a frame of an unknown kind from a
// later ABI version, which guests must skip.
func (r *restRun) request(name, payload string, more []byte) []byte {
	input := append(abi.AppendFrame(nil, 250, "new"), more...)
	input = abi.AppendName(abi.AppendSequence(input, uint64(r.commands)), name)
	return abi.AppendNow(abi.AppendPayload(input, []byte(payload)), cartStart)
}

func (r *restRun) answer(frames []byte, err error, mode abi.Mode) (string, error) {
	if err != nil {
		return "", err
	}
	var out abi.Output
	limits := abi.DefaultLimits()
	if err := abi.ParseOutput(&out, bytes.Clone(frames), mode, &limits); err != nil {
		return "", err
	}
	text := describeOutput(&out)
	for _, timer := range out.Timers {
		text += fmt.Sprintf("\nschedule %q %q %v", timer.Expression, timer.Zone, timer.Missed)
	}
	for i := range out.Sends {
		text += fmt.Sprintf("\nanswers %s %s", out.Sends[i].OnReply, out.Sends[i].OnReject)
	}
	return text + fmt.Sprintf("\nstate %v %s", out.HasState, out.State), nil
}
