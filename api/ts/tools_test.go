package ts

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience limits the time of a compiler or a script.
const patience = 3 * time.Minute

// node returns the JavaScript runtime.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	return path
}

// compiler returns the TypeScript compiler that package.json pins.
func compiler(t *testing.T) string {
	t.Helper()
	tsc, err := filepath.Abs("node_modules/.bin/tsc")
	if err == nil {
		_, err = os.Stat(tsc)
	}
	if err != nil {
		t.Skip("needs tsc: npm ci in api/ts")
	}
	return tsc
}

// run runs a program in a directory and returns what it printed.
func run(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", filepath.Base(name), err, out, errs.Bytes())
	}
	return out
}

// script is compiled once for all tests.
var script struct {
	once sync.Once
	dir  string
}

// compiled returns a directory with the client and the script that uses it,
// compiled to JavaScript from Core and Entities.
func compiled(t *testing.T) string {
	t.Helper()
	tsc := compiler(t)
	script.once.Do(func() {
		dir, err := os.MkdirTemp("", "hostd-client-ts-")
		if err != nil {
			t.Fatal(err)
		}
		use, err := os.ReadFile("testdata/retries.ts")
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"core.ts": Core, "entities.ts": Entities, "retries.ts": string(use), "package.json": `{"type":"module"}`} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(t, dir, tsc, "--strict", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable", "retries.ts")
		script.dir = dir
	})
	if script.dir == "" {
		t.Fatal("the script was not compiled, see the test before")
	}
	return script.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if script.dir != "" {
		_ = os.RemoveAll(script.dir) // the directory is not needed any more
	}
	os.Exit(code)
}

// readAll reads a body to its end.
func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	out, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		t.Error(err)
	}
	return out
}
