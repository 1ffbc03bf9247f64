package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
)

// newEngine creates an engine. At the end of the test, it must have no open
// module or instance.
func newEngine(t testing.TB, opts Options) *Engine {
	t.Helper()
	e, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("close engine: %v", err)
		}
		if used := e.Usage(); used != (Usage{}) {
			t.Errorf("%+v is still counted after close", used)
		}
	})
	return e
}

func mustCompile(t testing.TB, e *Engine, wasm []byte) *Module {
	t.Helper()
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

func instantiate(t testing.TB, m *Module) *Instance {
	t.Helper()
	g, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close instance: %v", err)
		}
	})
	return g
}

// start returns an instance of a test guest with entity 0 loaded.
func start(t testing.TB, opts Options, guest *testGuest) *Instance {
	t.Helper()
	g := instantiate(t, mustCompile(t, newEngine(t, opts), guest.build()))
	if status, err := g.Load(0, 0, nil); err != nil || status != abi.LoadDone {
		t.Fatalf("load: %v, %v", status, err)
	}
	return g
}

// bothEngines runs a test compiled and interpreted.
func bothEngines(t *testing.T, run func(t *testing.T, opts Options)) {
	t.Run("compiler", func(t *testing.T) { run(t, Options{}) })
	t.Run("interpreter", func(t *testing.T) { run(t, Options{Interpreter: true}) })
}

func TestEntitiesOfGuestAreIsolated(t *testing.T) {
	bothEngines(t, func(t *testing.T, opts Options) {
		g := start(t, opts, &testGuest{})
		if status, err := g.Load(0, 7, []byte("ignored")); err != nil || status != abi.LoadDone {
			t.Fatal(status, err)
		}
		check := func(out []byte, err error, want uint64) {
			t.Helper()
			if err != nil || len(out) != 8 || binary.LittleEndian.Uint64(out) != want {
				t.Fatalf("got % x, %v, want %d", out, err, want)
			}
		}
		out, err := g.Handle(0, []byte("12345"), Env{})
		check(out, err, 5)
		if err := g.Apply(7, bytes.Repeat([]byte{1}, 9000)); err != nil {
			t.Fatal(err)
		}
		out, err = g.Handle(7, nil, Env{})
		check(out, err, 9000)
		out, err = g.Query(0, []byte("123"), Env{})
		check(out, err, 5)
		out, err = g.Snapshot(7)
		check(out, err, 9000)
		if err := g.Drop(7); err != nil {
			t.Fatal(err)
		}
		if got := g.MemoryBytes(); got != 24*pageBytes {
			t.Errorf("memory is %d bytes, want 24 pages", got)
		}
	})
}

func TestManifestAndDescription(t *testing.T) {
	wasm := (&testGuest{}).importing("hostd", "now").build()
	m := mustCompile(t, newEngine(t, Options{}), wasm)
	if got := m.Manifest(); got.Name != "test" || len(got.EntityTypes) != 1 || got.EntityTypes[0].Name != "test" {
		t.Errorf("manifest is %+v", got)
	}
	d := m.Description()
	if d.Bytes != len(wasm) || d.Functions != 9 || d.MemoryMinPages != 24 || d.MemoryMaxPages != 1024 {
		t.Errorf("description is %+v", d)
	}
	if strings.Join(d.Imports, " ") != "hostd.now" || d.Exports[0] != "memory" || len(d.Exports) != 10 {
		t.Errorf("description is %+v", d)
	}
	if m.Digest() != journal.Digest(sha256.Sum256(wasm)) {
		t.Error("digest is not the one given")
	}
}

func TestInputOverLimitLeavesInstanceAlive(t *testing.T) {
	g := start(t, Options{}, &testGuest{})
	limit := abi.DefaultLimits().RequestBytes
	if _, err := g.Handle(0, make([]byte, limit+abi.CallExtraBytes), Env{}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := g.Handle(0, make([]byte, limit+abi.CallExtraBytes+1), Env{}); !errors.Is(err, errInputTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := g.Load(0, 1, make([]byte, limit+abi.LoadExtraBytes)); err != nil {
		t.Errorf("load at its limit: %v", err)
	}
	if _, err := g.Load(0, 1, make([]byte, limit+abi.LoadExtraBytes+1)); !errors.Is(err, errInputTooLarge) {
		t.Errorf("load over its limit: %v", err)
	}
	if _, err := g.Handle(0, nil, Env{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestClosedInstanceIsDead(t *testing.T) {
	g := start(t, Options{}, &testGuest{})
	out, err := g.Handle(0, []byte("1"), Env{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out, []byte{1, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("a result changed when its instance was closed: % x", out)
	}
	if _, err := g.Handle(0, []byte("1"), Env{}); !errors.Is(err, ErrInstanceDead) {
		t.Errorf("handle after close: %v", err)
	}
	if _, err := g.Snapshot(0); !errors.Is(err, ErrInstanceDead) {
		t.Errorf("snapshot after close: %v", err)
	}
}

func TestCloseOrderIsEnforced(t *testing.T) {
	e, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := mustCompile(t, e, (&testGuest{}).build())
	g := instantiate(t, m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Instantiate(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("instantiate a closed module: %v", err)
	}
	if _, err := g.Handle(0, []byte("x"), Env{}); err != nil {
		t.Errorf("an instance of a closed module must go on: %v", err)
	}
	if err := e.Close(t.Context()); !errors.Is(err, errInUse) {
		t.Errorf("close an engine in use: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.Compile(t.Context(), journal.Digest{}, (&testGuest{}).build()); !errors.Is(err, ErrClosed) {
		t.Errorf("compile in a closed engine: %v", err)
	}
}

func TestMemoryIsCountedAndReleased(t *testing.T) {
	e := newEngine(t, Options{MemoryBytes: 100 * pageBytes})
	m := mustCompile(t, e, (&testGuest{bodies: map[string][]byte{
		abi.ExportHandle: cat(i32c(8), op(opMemoryGrow, []byte{0}), op(opI64Extend), i64c(0), op(0x83)),
	}}).build())
	if used := e.MemoryBytes(); used != 0 {
		t.Fatalf("%d bytes are counted before the first instance", used)
	}
	var open []*Instance
	for range 4 {
		open = append(open, instantiate(t, m))
	}
	if used := e.MemoryBytes(); used != 96*pageBytes {
		t.Errorf("4 instances of 24 pages count as %d bytes", used)
	}
	if _, err := m.Instantiate(t.Context()); !errors.Is(err, errNoMemory) {
		t.Errorf("an instance over the budget: %v", err)
	}
	if _, err := open[0].Handle(0, nil, Env{}); err != nil {
		t.Fatal(err)
	}
	if got := open[0].MemoryBytes(); got != 24*pageBytes {
		t.Errorf("memory grew over the budget to %d bytes", got)
	}
	if err := open[1].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open[0].Handle(0, nil, Env{}); err != nil {
		t.Fatal(err)
	}
	if got := open[0].MemoryBytes(); got != 32*pageBytes {
		t.Errorf("memory did not grow within the budget: %d bytes", got)
	}
	if used := e.MemoryBytes(); used != 80*pageBytes {
		t.Errorf("%d bytes are counted, want 80 pages", used)
	}
}

func TestFailedInstantiationReleasesMemory(t *testing.T) {
	e := newEngine(t, Options{})
	outside := &testGuest{data: [][]byte{cat([]byte{0}, i32c(24*pageBytes-1), []byte{opEnd}, text("xx"))}}
	trapping := &testGuest{helpers: []helper{{code: op(opUnreachable)}}}
	trapping.exports = [][]byte{cat(text("_initialize"), []byte{kindFunction}, uleb(trapping.helperIndex(0)))}
	for name, guest := range map[string]*testGuest{"data outside memory": outside, "trap in _initialize": trapping} {
		wasm := guest.build()
		_, err := e.Compile(t.Context(), journal.Digest{}, wasm)
		var fault *Fault
		if !errors.As(err, &fault) || fault.Export != "_initialize" {
			t.Errorf("%s: %v", name, err)
		}
		if used := e.MemoryBytes(); used != 0 {
			t.Errorf("%s: %d bytes are still counted", name, used)
		}
	}
}

func TestCompilationCache(t *testing.T) {
	dir := t.TempDir() + "/cache"
	wasm := (&testGuest{}).build()
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == SealsName })
		if err != nil || len(entries) != 1 {
			t.Fatalf("cache directory: %v, %v", entries, err)
		}
		inner, err := os.ReadDir(dir + "/" + entries[0].Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range inner {
			names = append(names, dir+"/"+entries[0].Name()+"/"+entry.Name())
		}
		return names
	}
	compileOnce := func(wantLog string) {
		t.Helper()
		var log bytes.Buffer
		e := newEngine(t, Options{CacheDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m, err := e.Compile(t.Context(), journal.Digest{}, wasm)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), wantLog) || wantLog == "" && log.Len() > 0 {
			t.Errorf("log is %q, want %q", log.String(), wantLog)
		}
	}
	compileOnce("")
	first := files()
	if len(first) != 1 {
		t.Fatalf("one module gave cache files %v", first)
	}
	written, err := os.Stat(first[0])
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("the cache directory has mode %v", info.Mode())
	}

	compileOnce("") // found in the cache: the file is not written again, and no other file is added
	again, err := os.Stat(first[0])
	if err != nil || !os.SameFile(written, again) || len(files()) != 1 {
		t.Errorf("the second compilation wrote the cache again: %v, %v", files(), err)
	}

	content, err := os.ReadFile(first[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(first[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	compileOnce("compilation cache is damaged")
	if err := os.Truncate(files()[0], 20); err != nil {
		t.Fatal(err)
	}
	compileOnce("compilation cache is damaged")
	compileOnce("")
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	limits := abi.DefaultLimits()
	limits.MemoryBytes = 100
	limits.OutputBytes = 0
	_, err := New(t.Context(), Options{Limits: limits, MemoryBytes: -1})
	for _, want := range []string{"limit MemoryBytes must be a multiple", "limit OutputBytes must be positive", "MemoryBytes must not be negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
