package conformance

import (
	"log/slog"
	"testing"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/guests"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestExamplesConform checks that each example passes the suite, compiled and
// metered as on a node.
func TestExamplesConform(t *testing.T) {
	for _, name := range []string{"counter", "account", "chain", "session", "cart"} {
		t.Run(name, func(t *testing.T) { guests.Conforms(t, compile(t, "examples/wasm/"+name)) })
	}
}

// TestSendersConform checks that types whose commands send messages pass the
// suite, with payloads that are valid for these commands.
func TestSendersConform(t *testing.T) {
	for dir, samples := range map[string]abitest.Samples{
		"examples/wasm/transfer":   {"transfer": {"start": {[]byte(`{"from":"a","to":"b","amount":3}`)}}},
		"examples/wasm/payout":     {"payout": {"start": {[]byte(`{"from":"a","to":["b","c"],"amount":3}`), []byte(`{"from":"a","to":["b"],"amount":3,"approve":true}`)}, "signal": {[]byte(`{"name":"approval","value":{"by":"bo"}}`)}}},
		"tests/e2e/messages/guest": {"source": {"emit": {[]byte(`{"first":0,"sinks":3,"each":2,"answer":true}`)}}},
	} {
		report, err := abitest.Run(t.Context(), guests.Opener{Module: compile(t, dir)}, abitest.Options{Seed: 1, Samples: samples})
		if err != nil {
			t.Fatal(err)
		}
		for _, check := range report.Checks {
			if check.Status != abitest.Passed {
				t.Errorf("%s: %+v", dir, check)
			}
		}
	}
}

// TestTransientTypesConform checks that transient types, to which the checks of
// histories do not apply, pass the suite.
func TestTransientTypesConform(t *testing.T) {
	report, err := abitest.Run(t.Context(), guests.Opener{Module: compile(t, "tests/e2e/entities/guest")}, abitest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, check := range report.Checks {
		if check.EntityType != "hub" && check.EntityType != "chief" {
			continue
		}
		history := check.Name == "replay" || check.Name == "snapshot"
		switch {
		case check.Status == abitest.Passed:
			passed++
		case check.Status == abitest.Failed || !history:
			t.Errorf("%+v", check)
		}
	}
	if passed < 10 {
		t.Errorf("%d checks passed", passed)
	}
}

// TestMapOrderDependenceIsDetected checks that the suite finds the classic fault of a Go
// guest: a state that depends on the iteration order of a map, which differs
// between instances.
func TestMapOrderDependenceIsDetected(t *testing.T) {
	module := compile(t, "tests/conformance/testdata/maporder")
	samples := abitest.Samples{"bag": {"put": {[]byte(`{"item":"a"}`), []byte(`{"item":"b"}`), []byte(`{"item":"c"}`), []byte(`{"item":"d"}`)}}}
	report, err := abitest.Run(t.Context(), guests.Opener{Module: module}, abitest.Options{Samples: samples})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		if check.Name == "replay" && check.Status == abitest.Failed {
			return
		}
	}
	t.Errorf("not found\n%s", report)
}

func compile(t testing.TB, dir string) *guest.Module {
	t.Helper()
	return compileWith(t, dir, nil)
}

// compileWith compiles the Go guest in dir, which logs to logger.
func compileWith(t testing.TB, dir string, logger *slog.Logger) *guest.Module {
	t.Helper()
	return guests.Compile(t, testkit.BuildGuest(t, dir), logger)
}

// TestGuestsInTypeScriptConform checks that guests that consist of a script and
// a JavaScript engine pass the suite.
func TestGuestsInTypeScriptConform(t *testing.T) {
	for _, name := range []string{"counter-ts", "cart-ts", "booking"} {
		t.Run(name, func(t *testing.T) { guests.Conforms(t, guests.Compile(t, testkit.BuildExample(t, name), nil)) })
	}
}

// TestGuestsWithoutSDKConform checks that counters in other languages, which
// use no SDK and were written from the contract alone, pass the suite.
func TestGuestsWithoutSDKConform(t *testing.T) {
	for _, name := range []string{"counter-c", "counter-rust", "counter-as"} {
		t.Run(name, func(t *testing.T) { guests.Conforms(t, guests.Compile(t, testkit.BuildExample(t, name), nil)) })
	}
}
