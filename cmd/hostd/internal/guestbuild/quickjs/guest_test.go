package quickjs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/host/cron"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/guests"
)

// TestScriptFaultsEndTheInstance checks that every fault of a script ends its call and its
// instance, within the fuel of a command, and that the exception is reported
// with the source line.
func TestScriptFaultsEndTheInstance(t *testing.T) {
	m, err := compile(t, build(t, project(t, "odd")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	trap := []guest.FaultKind{guest.FaultTrap}
	for _, test := range []struct {
		command, payload string
		kinds            []guest.FaultKind
		says             []string
	}{
		{"broken", "", trap, []string{"TypeError: cannot read property 'of' of undefined\n    at broken (helper.js:3)\n    at <anonymous> (odd.ts:"}},
		{"thrown", "", trap, []string{"[object Object]"}},
		{"caused", "", trap, []string{"Error: above\n", "caused by RangeError: below\n"}},
		{"clock", "", trap, []string{"the clock is not available while events are applied", "(odd.ts:11)"}},
		{"made", "", trap, []string{"the clock is not available while events are applied", "(odd.ts:12)"}},
		{"random", "", trap, []string{"random numbers are not available while events are applied", "(odd.ts:13)"}},
		{"late", "", trap, []string{"TypeError: event late returned a promise: handlers are synchronous"}},
		{"async", "", trap, []string{"TypeError: command async returned a promise"}},
		{"promise", "", trap, []string{"a promise was used: handlers are synchronous"}},
		{"unknown", "", trap, []string{"TypeError: odd has no event never", "(odd.ts:58)"}},
		{"nothing", "", trap, []string{"the reply of command nothing is a value that JSON cannot express"}},
		{"move", `"x"`, trap, []string{"TypeError: not a function"}},
		{"spin", "", []guest.FaultKind{guest.FaultFuel}, nil},
		{"deep", "", trap, []string{"RangeError: Maximum call stack size exceeded", "at down (odd.ts:44)"}},
		{"nested", "", trap, []string{"RangeError: Maximum call stack size exceeded"}},
		{"eat", "", append(trap, guest.FaultFuel), nil},
	} {
		t.Run(test.command, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, m, 0)
			_, err := handle(t, g, abi.HandleEvents, input(test.command, test.payload))
			var fault *guest.Fault
			if !errors.As(err, &fault) || !slices.Contains(test.kinds, fault.Kind) {
				t.Fatalf("ended with %v, want one of %v\n%s", err, test.kinds, words(err))
			}
			for _, says := range test.says {
				if !strings.Contains(fault.LastWords(), says) {
					t.Errorf("it says %q, want %q", fault.LastWords(), says)
				}
			}
			if strings.Contains(fault.LastWords(), "src/") {
				t.Errorf("it tells lines of the SDK: %q", fault.LastWords())
			}
			t.Logf("%v after %d units: %s", fault, g.Fuel(), fault.LastWords())
			if _, err := g.Snapshot(0); !errors.Is(err, guest.ErrInstanceDead) {
				t.Errorf("after the fault a snapshot gives %v", err)
			}
		})
	}
}

// TestScriptClockAndRandomnessAreDeterministic checks that a script gets the clock and the
// random numbers of its call, which are the same in any instance.
func TestScriptClockAndRandomnessAreDeterministic(t *testing.T) {
	m, err := compile(t, build(t, project(t, "odd")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := abi.AppendSource(input("world", ""), abi.Source{Kind: abi.SourceEntity, EntityType: []byte("a"), EntityID: []byte("ü")})
	in = abi.AppendDue(in, now-1_000_000)
	in = abi.AppendPrincipal(in, "token", "ann", "x", "y")
	settings := abi.AppendSettings(nil, abi.AppendSetting(abi.AppendSetting(nil, "limits", "no"), "limit", "för 3"))
	in = append(in, settings...)
	out, err := handle(t, newGuest(t, m, 0), abi.HandleEvents, in)
	if err != nil {
		t.Fatal(err, words(err))
	}
	want := `{"now":"2023-11-14T22:13:20.123Z","nanoseconds":1700000000123456789,"date":1700000000123,"zone":0,` +
		`"numbers":[NUMBERS],"id":"the-id","type":"odd","sequence":7,"command":"c-1",` +
		`"source":{"kind":"entity","entityType":"a","entityID":"ü"},"due":"2023-11-14T22:13:20.122Z",` +
		`"principal":{"kind":"token","name":"ann","groups":["x","y"]},"limit":"för 3","loaded":"LOADED","gone":"undefinedundefined"}`
	var got struct {
		Numbers []float64
		Loaded  string
	}
	if err := json.Unmarshal(out.Reply, &got); err != nil {
		t.Fatal(err)
	}
	numbers, _ := json.Marshal(got.Numbers)
	want = strings.NewReplacer("[NUMBERS]", string(numbers), "LOADED", got.Loaded).Replace(want)
	if string(out.Reply) != want {
		t.Errorf("got\n%s\nwant\n%s", out.Reply, want)
	}
	if len(got.Numbers) != 2 || got.Numbers[0] == got.Numbers[1] || got.Numbers[0] < 0 || got.Numbers[0] >= 1 || !strings.HasPrefix(got.Loaded, "0 0.") {
		t.Errorf("%+v", got)
	}
	// The other instance has run a command already, and its seed differs.
	g, err := m.InstantiateVaried(t.Context(), 99, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if status, err := g.Load(0, 0, abi.AppendEntityID(nil, "the-id")); err != nil || status != abi.LoadDone {
		t.Fatal(status, err)
	}
	if _, err := handle(t, g, abi.HandleEvents, input("world", "")); err != nil {
		t.Fatal(err)
	}
	if again, err := handle(t, g, abi.HandleEvents, in); err != nil || !bytes.Equal(again.Reply, out.Reply) {
		t.Errorf("another instance: %v\n%s\n%s", err, again.Reply, out.Reply)
	}
	other, err := handle(t, g, abi.HandleEvents, abi.AppendSeed(input("world", ""), 43))
	if err != nil || strings.Contains(string(other.Reply), string(numbers)) || !strings.Contains(string(other.Reply), `"source":{"kind":"client"},"loaded"`) {
		t.Errorf("another seed: %v\n%s", err, other.Reply)
	}
	for want, frames := range map[string][]byte{"för 3": settings, "none": nil} {
		answer, err := g.Query(0, append(input("setting", ""), frames...), guest.Env{})
		if err != nil || !bytes.Contains(answer, []byte(`"`+want+`"`)) {
			t.Errorf("a query reads the setting as %q, %v, want %s", answer, err, want)
		}
	}
	if _, err := g.Query(0, input("draw", ""), guest.Env{}); !strings.Contains(words(err), "random numbers are not available in a query") {
		t.Errorf("%v %s", err, words(err))
	}
}

// TestScriptOutputs checks everything that a command may request from the
// host.
func TestScriptOutputs(t *testing.T) {
	var log bytes.Buffer
	m, err := compile(t, build(t, project(t, "odd")), guest.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 0)
	out, err := handle(t, g, abi.HandleEvents, input("all", ""))
	if err != nil {
		t.Fatal(err, words(err))
	}
	var text strings.Builder
	for _, s := range out.Sends {
		fmt.Fprintf(&text, "%s/%s %s %q %v %s %s\n", s.EntityType, s.EntityID, s.Command, s.Payload, s.WantsAnswer, s.OnReply, s.OnReject)
	}
	for _, x := range out.Timers {
		fmt.Fprintf(&text, "%s %d %s %q %v %q %s %v\n", x.Name, x.Due, x.Command, x.Payload, x.Cancel, x.Expression, x.Zone, x.Missed)
	}
	want := `other/a do "{\"n\":1}" false  
other/b do "" false  
other/ü ask "[]" true yes no
one 1700000000123000000 count "" false "" ` + ` once
two 5 count "{\"x\":\"😀\"}" false "" ` + ` once
three 0  "" true "" ` + ` once
four 0 count "" false "0 3 * * *" Europe/Berlin skip
`
	if text.String() != want || !out.Passivate || !out.Delete {
		t.Errorf("got\n%swant\n%s%+v", text.String(), want, out)
	}
	for _, line := range []string{`level=WARN msg="guest log"`, `line="a line"`, `line="another {\"n\":1} TypeError: t"`} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log has not %s:\n%s", line, log.String())
		}
	}
	// Replies of sizes up to the limit, and a larger reply, which the host
	// rejects.
	for _, size := range []int{0, 1000, 64 << 10, 200_000} {
		out, err := handle(t, g, abi.HandleEvents, input("large", fmt.Sprint(size)))
		if err != nil || string(out.Reply) != `"`+strings.Repeat("x", size)+`"` {
			t.Fatalf("a reply of %d: %v", size, err)
		}
	}
}

// TestScriptEventsRoundTrip checks that events are decoded as they were emitted, in
// all their versions, and that a late rejection is still a rejection.
func TestScriptEventsRoundTrip(t *testing.T) {
	m, err := compile(t, build(t, project(t, "odd")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 0)
	out, err := handle(t, g, abi.HandleEvents, input("move", `["a","b"]`))
	if err != nil {
		t.Fatal(err, words(err))
	}
	if e := out.Events[0]; string(e.Type) != "moved.v3" || string(e.Payload) != `{"to":["a","b"]}` || fmt.Sprintf("%s", e.Tags) != "[first second]" || string(out.Reply) != `"a+b"` {
		t.Errorf("%s %s %s, reply %s", e.Type, e.Payload, e.Tags, out.Reply)
	}
	for _, event := range []struct{ typ, payload, state string }{
		{"moved", `{"to":"old"}`, "old"}, {"moved.v2", `{"at":"newer"}`, "newer"}, {"moved.v3", `{"to":["x","y"]}`, "x+y"},
	} {
		if err := g.Apply(0, abi.AppendInputEvent(nil, 1, 0, event.typ, []byte(event.payload))); err != nil {
			t.Fatal(err, words(err))
		}
		if state, err := g.Snapshot(0); err != nil || string(state) != `{"events":0,"text":"`+event.state+`"}` {
			t.Errorf("%s: %s, %v", event.typ, state, err)
		}
	}
	out, err = handle(t, g, abi.HandleEvents, input("big", `{"number":"4611686018427387905"}`))
	if err != nil || string(out.Events[0].Payload) != `{"number":4611686018427387905}` || string(out.Reply) != `{"text":"9223372036854775810","number":4611686018427387905}` {
		t.Errorf("%v, %s, %s", err, out.Events[0].Payload, out.Reply)
	}
	for _, wrong := range []string{"", "{", `{"number":1.5}`, `{"number":"9223372036854775808"}`, `{"number":"x"}`, "[]", "3"} {
		if out, err := handle(t, g, abi.HandleEvents, input("big", wrong)); err != nil || string(out.Reject.Code) != "invalid_payload" {
			t.Errorf("%s: %v %+v", wrong, err, out)
		}
	}
	// The event function gets the encoded event, and not the object of the
	// command handler.
	if out, err = handle(t, g, abi.HandleEvents, input("alias", "")); err != nil || string(out.Reply) != `["a",null]` {
		t.Errorf("%v %s", err, out.Reply)
	}
	if out, err = handle(t, g, abi.HandleEvents, input("reject-late", "")); err != nil || string(out.Reject.Code) != "late" || string(out.Reject.Message) != "after an event" {
		t.Errorf("%v %+v", err, out)
	}
	if out, err = handle(t, g, abi.HandleEvents, input("caught", "")); err != nil || !strings.HasSuffix(string(out.Reply), `RangeError"`) {
		t.Fatalf("%v %+v", err, out)
	}
	if out, err = handle(t, g, abi.HandleEvents, input("absent", "")); err != nil || string(out.Reject.Code) != "unknown_name" {
		t.Errorf("%v %+v", err, out)
	}
	if status, err := g.Load(0, 1, abi.AppendSnapshot(nil, []byte("{"))); err != nil || status != abi.LoadUnreadable {
		t.Errorf("a snapshot that is none: %v, %v", status, err)
	}
	if status, err := g.Load(0, 1<<40, abi.AppendEntityID(nil, "far")); err != nil || status != abi.LoadNoRoom {
		t.Errorf("a handle that is none: %v, %v", status, err)
	}
}

// TestScriptNumbersKeepAllDigits checks that a script receives the corner cases of
// package jsontext with all their digits, and writes them with all digits.
func TestScriptNumbersKeepAllDigits(t *testing.T) {
	m, err := compile(t, build(t, project(t, "numbers")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 0)
	answer := func(command, payload string) string {
		out, err := handle(t, g, abi.HandleEvents, input(command, payload))
		if err != nil {
			t.Fatal(command, payload, err, words(err))
		}
		return string(out.Reply) + string(out.Reject.Code)
	}
	cases, err := os.ReadFile("../../../../../abi/jsontext/testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(cases)) {
		in, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !ok || want == "refused" {
			continue // the API rejects it
		}
		for _, text := range []string{in, want} {
			got, err := jsontext.Canonical([]byte(answer("any", text)))
			if err != nil || string(got) != want {
				t.Errorf("%s became %s, %v, want %s", text, got, err, want)
			}
		}
		if state, err := g.Snapshot(0); err != nil || !jsontext.IsValid(state) {
			t.Errorf("%s: the state is %s, %v", in, state, err)
		}
	}
	const refused = "invalid_payload"
	for _, c := range []struct{ in, integer, int64, number string }{
		{"5", "5", "5", "5"},
		{"5.0", "5", "5", "5"},
		{"1e2", "100", "100", "100"},
		{"5.5", refused, refused, "5.5"},
		{"9007199254740991", "9007199254740991", "9007199254740991", "9007199254740991"},
		{"9007199254740992", refused, "9007199254740992", "9007199254740992"},
		{"9007199254740993", refused, "9007199254740993", "9007199254740992"},
		{"-9007199254740993.0", refused, "-9007199254740993", "-9007199254740992"},
		{"1234567890123456789", refused, "1234567890123456789", "1234567890123456800"},
		{"1152921504606847000", refused, "1152921504606847000", "1152921504606847000"},
		{"9223372036854775807", refused, "9223372036854775807", "9223372036854776000"},
		{"-9223372036854775808", refused, "-9223372036854775808", "-9223372036854776000"},
		{"9223372036854775808", refused, refused, "9223372036854776000"},
		{"1e21", refused, refused, "1e+21"},
		{"1e400", refused, refused, refused},
		{`"9007199254740993"`, refused, "9007199254740993", refused},
		{`"12"`, "12", "12", refused},
		{`"1234567890123456x"`, refused, refused, refused},
	} {
		payload := `{"v":` + c.in + `}`
		if a, b, n := answer("integer", payload), answer("int64", payload), answer("number", payload); a != c.integer || b != c.int64 || n != c.number {
			t.Errorf("%s: integer %s, int64 %s, number %s, want %+v", c.in, a, b, n, c)
		}
	}
	if got := answer("half", ""); got != `"�\\ud800"` {
		t.Errorf("half of a pair is written as %s", got)
	}
	if got := answer("own", ""); got != `"[\"1152921504606846976\",1]"` {
		t.Errorf("a script writes %s", got)
	}
}

// TestScriptTimesOutOfRange checks that a time beyond the host's range means never,
// and that the host rejects the command if the time is before 1970 or invalid.
// That is not a fault of the module, because the time may come from a caller.
func TestScriptTimesOutOfRange(t *testing.T) {
	m, err := compile(t, build(t, project(t, "numbers")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 0)
	const never = math.MaxInt64
	for _, c := range []struct {
		at  string
		due int64 // -1: rejected
	}{
		{`{"date":"9999-12-31T23:59:59Z"}`, never},
		{`{"date":"2300-01-01T00:00:00Z"}`, never},
		{`{"date":"2262-04-11T23:47:16.855Z"}`, never},
		{`{"date":"2262-04-11T23:47:16.854Z"}`, 9223372036854000000},
		{`{"date":"1970-01-01T00:00:00.001Z"}`, 1000000},
		{`{"ms":1.5}`, 1000000},
		{`{"ms":1e300}`, never},
		{`{"ns":"9223372036854775806"}`, never - 1},
		{`{"ns":"9223372036854775808"}`, never},
		{`{"ns":"-1"}`, -1},
		{`{"ms":-0.5}`, -1},
		{`{"date":"1600-01-01T00:00:00Z"}`, -1},
		{`{"date":"soon"}`, -1},
		{`{}`, -1},
		{`{"ms":"12"}`, -1},
	} {
		out, err := handle(t, g, abi.HandleEvents, input("at", c.at))
		if c.due < 0 {
			if !errors.Is(err, abi.ErrInvalidValue) || !strings.Contains(err.Error(), `timer is due before 1970 or out of range: t`) {
				t.Errorf("%s: %v", c.at, err)
			}
			continue
		}
		if err != nil || len(out.Timers) != 1 || out.Timers[0].Due != c.due || string(out.Reply) != `"set"` {
			t.Errorf("%s: %v, %s, %v %s, want %d", c.at, out.Timers, out.Reply, err, words(err), c.due)
		}
	}
}

// TestScriptSchedulesMatchHost checks that SDK and host accept the same schedules.
func TestScriptSchedulesMatchHost(t *testing.T) {
	m, err := compile(t, build(t, project(t, "numbers")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 0)
	for expressions := range slices.Chunk(guests.Schedules(), 20) {
		text, err := json.Marshal(expressions)
		if err != nil {
			t.Fatal(err)
		}
		out, err := handle(t, g, abi.HandleEvents, input("schedules", string(text)))
		if err != nil {
			t.Fatal(err, words(err))
		}
		var valid []bool
		if err := json.Unmarshal(out.Reply, &valid); err != nil || len(valid) != len(expressions) {
			t.Fatalf("%d answers, %v", len(valid), err)
		}
		for i, expression := range expressions {
			if _, err := cron.Parse(expression, ""); valid[i] != (err == nil) {
				t.Errorf("%q is valid: %v; the host says %v", expression, valid[i], err)
			}
		}
	}
}

// TestScriptOverlongNamesAreLimits checks that a name that does not fit a frame exceeds a
// limit of the host, and is not a fault of the script.
func TestScriptOverlongNamesAreLimits(t *testing.T) {
	m, err := compile(t, build(t, project(t, "numbers")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 0)
	for _, n := range []int{255, 256, 40_000, 65_535, 65_536, 70_000} {
		if _, err := handle(t, g, abi.HandleEvents, input("names", fmt.Sprint(n))); !errors.Is(err, abi.ErrOverLimit) {
			t.Errorf("names of %d: %v", n, err)
		}
	}
}

// TestScriptDurableStates checks that a durable state is emitted if it changed,
// that a rejection restores it, and that a bigint in the state is still a
// bigint after a load.
func TestScriptDurableStates(t *testing.T) {
	m, err := compile(t, build(t, project(t, "odd")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, m, 1)
	state := ""
	for _, test := range []struct{ name, payload, state, answer string }{
		{"set", `{"n":1}`, `{"n":1,"big":1152921504606846976}`, `"1152921504606846976"`},
		{"look", "", "", "1"},
		{"set", `{"n":-1}`, "", "negative"},
		{"set", `{"n":2}`, `{"n":2,"big":2305843009213693952}`, `"2305843009213693952"`},
		{"look", "", "", "2"},
	} {
		out, err := handle(t, g, abi.HandleState, input(test.name, test.payload))
		if err != nil {
			t.Fatal(err, words(err))
		}
		if string(out.State) != test.state || string(out.Reply)+string(out.Reject.Code) != test.answer {
			t.Errorf("%s %s: state %s, %s%s", test.name, test.payload, out.State, out.Reply, out.Reject.Code)
		}
		if out.State != nil {
			state = string(out.State)
		}
		if status, err := g.Load(1, 0, abi.AppendSnapshot(nil, []byte(state))); err != nil || status != abi.LoadDone {
			t.Fatal(status, err)
		}
	}
	transient := newGuest(t, m, 2)
	for want := range 3 {
		if out, err := handle(t, transient, abi.HandleState, input("up", "")); err != nil || string(out.Reply) != fmt.Sprint(want+1) || out.State != nil {
			t.Errorf("%v %+v", err, out)
		}
	}
}

// TestStatesAreMigrated checks that a state of each listed version is migrated
// to the current version, that other versions are rejected, and that the
// conformance suite passes.
func TestStatesAreMigrated(t *testing.T) {
	m, err := compile(t, build(t, project(t, "drafts")), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := abitest.Run(t.Context(), guests.Opener{Module: m}, abitest.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		if check.Status == abitest.Failed || check.EntityType != "loose" && check.Status != abitest.Passed {
			t.Errorf("%+v", check)
		}
	}
	g := newGuest(t, m, 0)
	for _, test := range []struct {
		typ           uint32
		version       uint64
		stored, state string
		status        abi.LoadStatus
	}{
		{0, 1, `{"text":"word"}`, `{"count":40,"first":"word!"}`, abi.LoadDone},
		{0, 2, `{"count":"900719925474099100","text":""}`, `{"count":9007199254740991000,"first":"!"}`, abi.LoadDone},
		{0, 0, `{"count":7,"first":"x"}`, `{"count":7,"first":"x"}`, abi.LoadDone},
		{0, 3, `{"count":8,"first":"x"}`, `{"count":8,"first":"x"}`, abi.LoadDone},
		{0, 4, `{"count":9,"first":"x"}`, "", abi.LoadUnreadable},
		{0, 1 << 33, `{"text":"word"}`, "", abi.LoadUnreadable},
		{0, 2, `{"count":"x","text":""}`, "", abi.LoadUnreadable},
		{0, 1, `{`, "", abi.LoadUnreadable},
		{1, 1, `{"text":"a b"}`, `{"words":["a","b"]}`, abi.LoadDone},
		{1, 2, `{"words":[]}`, `{"words":[]}`, abi.LoadDone},
		{2, 1, `{"sum":4}`, `{"total":4,"last":"?"}`, abi.LoadDone},
		{2, 0, `{"total":4,"last":"x"}`, `{"total":4,"last":"x"}`, abi.LoadDone},
		{2, 3, `{"total":4,"last":"x"}`, "", abi.LoadUnreadable},
	} {
		input := abi.AppendSnapshot(abi.AppendEntityID(nil, "old"), []byte(test.stored))
		if test.version != 0 {
			input = abi.AppendStateVersion(input, test.version)
		}
		status, err := g.Load(test.typ, 1, input)
		if err != nil || status != test.status {
			t.Fatalf("%s of version %d: %v, %v %s", test.stored, test.version, status, err, words(err))
		}
		if test.state == "" {
			continue
		}
		if state, err := g.Snapshot(1); err != nil || string(state) != test.state {
			t.Errorf("%s of version %d is %s, %v, want %s", test.stored, test.version, state, err, test.state)
		}
	}
	for _, e := range []struct {
		typ                        uint32
		stored, payload, now, made string
	}{
		{0, "state", `{"text":"word"}`, "state.v3", `{"count":40,"first":"word!"}`},
		{0, "state.v2", `{"count":1,"text":""}`, "state.v3", `{"count":10,"first":"!"}`},
		{0, "state.v3", `{"count":1}`, "state.v3", `{"count":1}`},
		{1, "state", `{"text":"a b"}`, "state.v2", `{"words":["a","b"]}`},
		{2, "placed", `{"item":"ö"}`, "placed.v3", `{"count":2,"item":"ö"}`},
		{2, "placed.v2", `{"count":"900719925474099100","item":""}`, "placed.v3", `{"count":1801439850948198200,"item":""}`},
		{2, "placed.v3", `{ "count":9007199254740993}`, "placed.v3", `{ "count":9007199254740993}`},
		{2, "unheard", `{}`, "unheard", `{}`},
		{2, "state", `{"sum":1}`, "state", `{"sum":1}`}, // a real event of the type
		{2, "unheard", ``, "unheard", ``},
	} {
		answer, err := g.Upcast(e.typ, abi.AppendInputEvent(nil, 1, 2, e.stored, []byte(e.payload)))
		if err != nil {
			t.Fatal(err, words(err))
		}
		if name, made, err := abi.UpcastEvent(answer, 1000); err != nil || string(name) != e.now || string(made) != e.made {
			t.Errorf("readers get %s %s as %s %s, %v", e.stored, e.payload, name, made, err)
		}
	}
	about := m.Manifest().EntityTypes
	if of := about[2]; of.StateVersion != 2 || len(of.ReadsStates) != 1 || of.ReadsStates[0].Version != 1 || len(of.Events) != 3 {
		t.Errorf("the manifest says of snapshots %+v", of)
	}
	if about[0].StateVersion != 3 || len(about[0].ReadsStates) != 2 || about[1].StateVersion != 2 || about[1].ReadsStates[0].Version != 1 {
		t.Errorf("the manifest says %+v", about)
	}
	if codes := about[0].Commands[0].Rejections; len(codes) != 1 || codes[0] != "too_long" || about[2].Commands[0].Rejections != nil {
		t.Errorf("the codes of rejections are %q", codes)
	}
}
