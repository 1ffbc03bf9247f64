package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit"
)

// opener puts a compiled module under the suite.
type opener struct{ module *engine.Module }

func (o opener) Describe() ([]byte, error) { return json.Marshal(o.module.Manifest()) }

func (o opener) Open(ctx context.Context, seed uint64) (abitest.Instance, error) {
	g, err := o.module.InstantiateVaried(ctx, 1+int64(seed>>1), seed)
	if err != nil {
		return nil, err
	}
	return instance{g}, nil
}

type instance struct{ *engine.Instance }

func (i instance) Handle(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return i.Instance.Handle(handle, frames, engine.Env{Now: env.Now, Seed: env.Seed})
}

func (i instance) Query(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return i.Instance.Query(handle, frames, engine.Env{Now: env.Now, Seed: env.Seed})
}

// TestExamplesConform runs each example, compiled and metered as in a node,
// through the suite.
func TestExamplesConform(t *testing.T) {
	for _, name := range []string{"counter", "account", "chain", "session"} {
		t.Run(name, func(t *testing.T) { conforms(t, compile(t, "examples/wasm/"+name)) })
	}
}

// TestSendersConform: so do types whose commands send, once they are given
// payloads that mean something to them.
func TestSendersConform(t *testing.T) {
	for dir, samples := range map[string]abitest.Samples{
		"examples/wasm/transfer":   {"transfer": {"start": {[]byte(`{"from":"a","to":"b","amount":3}`)}}},
		"tests/e2e/messages/guest": {"source": {"emit": {[]byte(`{"first":0,"sinks":3,"each":2,"answer":true}`)}}},
	} {
		report, err := abitest.Run(t.Context(), opener{compile(t, dir)}, abitest.Options{Seed: 1, Samples: samples})
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

// TestTransientTypesConform: so do types that keep nothing; what is about
// histories does not apply to them.
func TestTransientTypesConform(t *testing.T) {
	report, err := abitest.Run(t.Context(), opener{compile(t, "tests/e2e/entities/guest")}, abitest.Options{})
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

// TestMapOrderIsFound: the classic fault of a Go guest is to evolve by the
// order of a map, which differs between instances.
func TestMapOrderIsFound(t *testing.T) {
	module := compile(t, "tests/conformance/testdata/maporder")
	samples := abitest.Samples{"bag": {"put": {[]byte(`{"item":"a"}`), []byte(`{"item":"b"}`), []byte(`{"item":"c"}`), []byte(`{"item":"d"}`)}}}
	report, err := abitest.Run(t.Context(), opener{module}, abitest.Options{Samples: samples})
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

func compile(t testing.TB, dir string) *engine.Module {
	t.Helper()
	return compileWith(t, dir, nil)
}

// compileWith compiles the Go guest in dir, which logs to logger.
func compileWith(t testing.TB, dir string, logger *slog.Logger) *engine.Module {
	t.Helper()
	return compileModule(t, testkit.BuildGuest(t, dir), logger)
}

func compileModule(t testing.TB, wasm []byte, logger *slog.Logger) *engine.Module {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Options{CacheDir: cacheDir(t), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	m, err := e.Compile(t.Context(), journal.Digest(sha256.Sum256(wasm)), wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close module: %v", err)
		}
	})
	return m
}

// TestGuestsWithoutSDKConform runs the counters in other languages, written
// from the contract alone.
func TestGuestsWithoutSDKConform(t *testing.T) {
	for _, name := range []string{"counter-c", "counter-rust", "counter-as"} {
		t.Run(name, func(t *testing.T) { conforms(t, compileModule(t, testkit.BuildExample(t, name), nil)) })
	}
}

// conforms runs the whole suite, with payloads the guest can use and with
// guessed ones.
func conforms(t *testing.T, module *engine.Module) {
	t.Helper()
	samples := abitest.Samples{
		"counter": {"add": {[]byte(`{"amount":1}`), []byte(`{"amount":-3}`), []byte(`{"amount":"7"}`)}},
		"account": {"deposit": {[]byte(`{"amount":5}`)}, "withdraw": {[]byte(`{"amount":3}`)}},
		"chain":   {"link": {[]byte(`{"n":1}`), []byte(`{"n":-9}`)}},
	}
	for _, options := range []abitest.Options{{Seed: 1, Samples: samples}, {Seed: 2}} {
		report, err := abitest.Run(t.Context(), opener{module}, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, check := range report.Checks {
			if check.Status != abitest.Passed {
				t.Errorf("seed %d: %+v", options.Seed, check)
			}
		}
	}
}
