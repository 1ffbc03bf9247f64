package quickjs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest"
)

const installed = "../../../../../examples/wasm/counter-ts/node_modules"

// project returns a copy of a testdata project, with the packages of an
// example.
func project(t *testing.T, name string) string {
	t.Helper()
	packages, err := filepath.Abs(installed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(packages, enginePackage)); err != nil {
		t.Skip("needs the engine for JavaScript: npm ci in examples/wasm/counter-ts")
	}
	dir := t.TempDir()
	if name != "" {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(packages, enginePackage), filepath.Join(dir, "node_modules", enginePackage)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// build builds a project and fails the test if that fails.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	var log bytes.Buffer
	out := filepath.Join(t.TempDir(), "out.wasm")
	if err := Build(t.Context(), dir, out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func compile(t *testing.T, wasm []byte, options guest.Options) (*guest.Module, error) {
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
	m, err := e.Compile(t.Context(), sha256.Sum256(wasm), wasm)
	if err == nil {
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Errorf("close module: %v", err)
			}
		})
	}
	return m, err
}

// TestModulesAreReproducible checks that the same sources produce the same
// bytes in any directory.
func TestModulesAreReproducible(t *testing.T) {
	if a, b := build(t, project(t, "odd")), build(t, project(t, "odd")); !bytes.Equal(a, b) {
		t.Error("two builds differ")
	}
}

// TestBuildErrorsSayWhatToDo checks that each error says what to do, and that no file
// is written or changed.
func TestBuildErrorsSayWhatToDo(t *testing.T) {
	const entity = "import { entity, serve } from '@hostd/guest';\n"
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing":        {nil, "is not a TypeScript"},
		"no JSON":        {map[string]string{"package.json": "{"}, "package.json: unexpected end"},
		"no script":      {map[string]string{"package.json": "{}"}, "has no script src/index.ts, index.ts, src/index.js, index.js"},
		"another script": {map[string]string{"package.json": `{"main":"app.ts"}`, "index.ts": ""}, "has no script app.ts"},
		"no syntax":      {map[string]string{"package.json": "{}", "index.ts": entity + "\nlet = ;"}, "index.ts:3:"},
		"no such import": {map[string]string{"package.json": "{}", "index.ts": "import 'absent';"}, `index.ts:1: Could not resolve "absent"`},
		"await":          {map[string]string{"package.json": "{}", "index.ts": entity + "await 1;"}, "index.ts:2: Top-level await"},
		"node's modules": {map[string]string{"package.json": "{}", "index.ts": "import fs from 'node:fs'; fs.a();"}, "index.ts:1:"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t, "")
			for file, text := range test.files {
				write(t, dir, file, text)
			}
			write(t, dir, "out.wasm", "before")
			var log bytes.Buffer
			err := Build(t.Context(), dir, filepath.Join(dir, "out.wasm"), &log)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q\n%s", err, test.says, log.String())
			}
			if text, err := os.ReadFile(filepath.Join(dir, "out.wasm")); err != nil || string(text) != "before" {
				t.Errorf("the file before is %q, %v", text, err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, ".out*")); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}

// TestUnknownEngineIsRejected checks that an unknown engine, and a project without an
// engine, are rejected with the command that installs it.
func TestUnknownEngineIsRejected(t *testing.T) {
	dir := project(t, "odd")
	path := filepath.Join(dir, "node_modules", enginePackage)
	source, err := os.ReadFile(filepath.Join(path, engineFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.wasm")
	if err := Build(t.Context(), dir, out, os.Stderr); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("without an engine: %v", err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, engineFile, string(append(source, 0)))
	if err := Build(t.Context(), dir, out, os.Stderr); err == nil || !strings.Contains(err.Error(), "is not the file of quickjs-wasi 3.6.2") {
		t.Errorf("with another engine: %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was written: %v", err)
	}
}

// TestScriptLoadErrorHasLine checks that an exception during loading is reported,
// with its line.
func TestScriptLoadErrorHasLine(t *testing.T) {
	const begin = "import { entity, serve } from '@hostd/guest';\n"
	const migrate = "import { durable, serve } from '@hostd/guest'; serve('a', '1', "
	for name, test := range map[string]struct{ script, says string }{
		"throws":          {begin + "entity('a');\nthrow new TypeError('not today');", "TypeError: not today\n    at <anonymous> (index.ts:3)"},
		"serves nothing":  {begin + "serve('a', '1');", "TypeError: a module needs an entity type"},
		"never serves":    {begin + "entity('a');", "Error: the script never called serve"},
		"imports no SDK":  {"globalThis.x = 1;", "JavaScript threw"},
		"bad name":        {begin + "entity('A');", `"A" is not a valid type name`},
		"twice":           {begin + "const a = entity('a'); serve('a', '1', a, a);", "entity type a is registered twice"},
		"command twice":   {begin + "entity('a').command('b', () => 1).command('b', () => 1);", "command b is declared twice"},
		"upcast of none":  {begin + "serve('a', '1', entity('a').upcast('b', 1, () => 1));", "event b has an upcaster but is not declared"},
		"upcast with gap": {begin + "serve('a', '1', entity('a').event('b', () => 1).upcast('b', 1, () => 1).upcast('b', 3, () => 1));", "version 2 is not upcast"},
		"migrated events": {"import { serve, transient } from '@hostd/guest';\nserve('a', '1', transient('a').migrateState(1, () => 1));", "a transient type stores no states to migrate"},
		"migrated gap":    {migrate + "durable('a').migrateState(3, () => 1).migrateState(1, () => 1));", "the state of version 2 is not migrated"},
		"migrated twice":  {migrate + "durable('a').migrateState(1, () => 1).migrateState(1, () => 1));", "the state of version 1 is migrated twice"},
		"migrated to two": {migrate + "durable('a', { stateVersion: 3 }).migrateState(1, () => 1));", "the state has version 2, but stateVersion is 3"},
		"migrated 0":      {migrate + "durable('a').migrateState(0, () => 1));", "a version of a state must be between 1 and 1000"},
		"promise":         {begin + "Promise.resolve(1).then(() => 1); serve('a', '1', entity('a'));", "a promise was used while the script was loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := project(t, "")
			write(t, dir, "package.json", "{}")
			write(t, dir, "index.ts", test.script)
			_, err := compile(t, build(t, dir), guest.Options{Interpreter: true})
			var fault *guest.Fault
			if !errors.As(err, &fault) || !strings.Contains(fault.LastWords(), test.says) {
				t.Errorf("%v\n%s\nwant %q", err, words(err), test.says)
			}
		})
	}
}

func words(err error) string {
	var fault *guest.Fault
	if errors.As(err, &fault) {
		return fault.LastWords()
	}
	return ""
}

// newGuest returns an instance of the odd module, with a loaded entity.
func newGuest(t *testing.T, m *guest.Module, typ uint32) *guest.Instance {
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
	if status, err := g.Load(typ, 0, abi.AppendEntityID(nil, "the-id")); err != nil || status != abi.LoadDone {
		t.Fatal(status, err)
	}
	return g
}

func input(name, payload string) []byte {
	in := abi.AppendName(abi.AppendSequence(nil, 7), name)
	in = abi.AppendNow(abi.AppendPayload(in, []byte(payload)), now)
	return abi.AppendCommandID(abi.AppendSeed(in, 42), "c-1")
}

const now = 1_700_000_000_123_456_789

// handle runs a command, and parses its output.
func handle(t *testing.T, g *guest.Instance, mode abi.Mode, in []byte) (*abi.Output, error) {
	t.Helper()
	frames, err := g.Handle(0, in, guest.Env{Now: now, Seed: 42})
	if err != nil {
		return nil, err
	}
	var out abi.Output
	limits := abi.DefaultLimits()
	if err := abi.ParseOutput(&out, bytes.Clone(frames), mode, &limits); errors.Is(err, abi.ErrOverLimit) || errors.Is(err, abi.ErrInvalidValue) {
		return nil, err
	} else if err != nil {
		t.Fatal(err)
	}
	return &out, nil
}
