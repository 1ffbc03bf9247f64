package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/tests/support/testkit"
)

// patience bounds the run of a compiler or a script.
const patience = 3 * time.Minute

// tool returns the path of a program that npm installs for these tests, as
// pinned in package.json.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("node_modules", ".bin", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skipf("needs %s: npm ci in tests/clients", name)
	}
	return path
}

// run runs a program in a directory and returns its output.
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

// accountModule writes the module of the example account to a file.
func accountModule(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "account.wasm")
	if err := os.WriteFile(path, testkit.BuildExample(t, "account"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// generate runs the client generator for the example account.
func generate(t *testing.T, lang, dir string, more ...string) {
	t.Helper()
	run(t, ".", testkit.Program(t), append([]string{"client", "generate", accountModule(t), "--lang", lang, "-o", dir}, more...)...)
}

// script is compiled once for all tests: the generated client and the scripts
// of this folder, as JavaScript.
var script struct {
	once sync.Once
	dir  string
}

// compiled returns the directory of the compiled scripts. They have passed the
// compiler's strictest checks.
func compiled(t *testing.T) string {
	t.Helper()
	tsc := tool(t, "tsc")
	script.once.Do(func() {
		dir, err := os.MkdirTemp("", "hostd-clients-")
		if err != nil {
			t.Fatal(err)
		}
		generate(t, "ts", dir)
		sources, err := filepath.Glob("*.ts")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sources {
			text, err := os.ReadFile(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, s), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for name, v := range map[string]any{
			"package.json": map[string]any{"type": "module"},
			"tsconfig.json": map[string]any{"compilerOptions": map[string]any{
				"strict": true, "target": "es2022", "module": "es2022", "moduleResolution": "bundler", "lib": []string{"es2022", "dom", "dom.iterable"},
				"types": []string{}, "removeComments": true, "exactOptionalPropertyTypes": true, "noUncheckedIndexedAccess": true, "noUnusedLocals": true, "noImplicitReturns": true,
				"erasableSyntaxOnly": true, "verbatimModuleSyntax": true,
			}, "include": []string{"*.ts"}},
		} {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(t, dir, tsc)
		script.dir = dir
	})
	if script.dir == "" {
		t.Fatal("the scripts were not compiled, see the test before")
	}
	return script.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if script.dir != "" {
		_ = os.RemoveAll(script.dir) // a temporary directory that is no longer needed
	}
	os.Exit(code)
}
