// Package guests tests guests in any language, run by the engine as on a node:
// it checks that they conform to the ABI and that the carts of two SDKs behave
// in the same way. It builds nothing and starts no goroutine.
package guests

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit"
)

// CacheDir returns the directory in which compiled guests are kept between
// runs. Files are named by the hash of their content.
func CacheDir(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "hostd-conformance")
}

// Compile compiles a module with fuel metering, as a node does, and closes it
// when the test ends. Its guests log to logger, which may be nil.
func Compile(t testing.TB, wasm []byte, logger *slog.Logger) *guest.Module {
	t.Helper()
	dir := CacheDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// The lock admits one engine at a time, because otherwise an engine could
	// remove files that another engine is about to rename.
	var m *guest.Module
	if err := testkit.Locked(filepath.Dir(dir), filepath.Base(dir), func() error {
		m = compile(t, wasm, guest.Options{CacheDir: dir, Logger: logger})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

func compile(t testing.TB, wasm []byte, options guest.Options) *guest.Module {
	t.Helper()
	e, err := guest.New(t.Context(), options)
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

// Opener adapts a compiled module to the conformance suite.
type Opener struct{ Module *guest.Module }

// Describe returns the module's manifest.
func (o Opener) Describe() ([]byte, error) { return json.Marshal(o.Module.Manifest()) }

// Open creates an instance whose clock and random numbers depend on seed.
func (o Opener) Open(ctx context.Context, seed uint64) (abitest.Instance, error) {
	g, err := o.Module.InstantiateVaried(ctx, 1+int64(seed>>1), seed)
	if err != nil {
		return nil, err
	}
	return instance{g}, nil
}

type instance struct{ *guest.Instance }

func (i instance) Handle(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return i.Instance.Handle(handle, frames, guest.Env{Now: env.Now, Seed: env.Seed})
}

func (i instance) Query(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return i.Instance.Query(handle, frames, guest.Env{Now: env.Now, Seed: env.Seed})
}

// samples are valid payloads of the example entities, by entity type.
var samples = abitest.Samples{
	"counter": {"add": {[]byte(`{"amount":1}`), []byte(`{"amount":-3}`), []byte(`{"amount":"7"}`)}},
	"account": {"deposit": {[]byte(`{"amount":5}`)}, "withdraw": {[]byte(`{"amount":3}`)}},
	"offer":   {"add": {[]byte(`{"seats":9}`)}, "take": {[]byte(`{"seats":1}`)}},
	"booking": {"start": {[]byte(`{"flight":"ba1","hotel":"ritz","seats":1}`)}, "signal": {[]byte(`{"name":"payment","value":{"by":"eve"}}`)}},
	"chain":   {"link": {[]byte(`{"n":1}`), []byte(`{"n":-9}`)}},
	"cart": {
		"add": {
			[]byte(`{"price":5,"quantity":2,"sku":"pear"}`), []byte(`{"price":"7","quantity":1,"sku":"fig"}`),
			[]byte(`{"price":0,"quantity":1000,"sku":"apple-1"}`), []byte(`{"quantity":3,"sku":"pear"}`),
		},
		"remove": {[]byte(`{"sku":"pear"}`), []byte(`{"sku":"apple-1"}`)},
	},
}

// Conforms runs the conformance suite on an example three times: with valid
// payloads, with schemas, and with guessed payloads only. No check may fail.
// With guessed payloads only, some checks may be skipped.
func Conforms(t *testing.T, module *guest.Module) {
	t.Helper()
	for _, options := range []abitest.Options{{Seed: 1, Samples: samples}, {Seed: 2}, {Seed: 3, Samples: abitest.Samples{}}} {
		report, err := abitest.Run(t.Context(), Opener{module}, options)
		if err != nil {
			t.Fatal(err)
		}
		guessed := options.Samples != nil && len(options.Samples) == 0
		for _, check := range report.Checks {
			if check.Status == abitest.Failed || check.Status == abitest.Skipped && !guessed {
				t.Errorf("seed %d: %+v", options.Seed, check)
			}
		}
	}
}
