// Package firsthour follows a new user who has the program and an empty
// directory: a project in each language, its module, and the first reply of its
// entity from a node. The processes that it starts end with their test.
package firsthour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// patience limits operations that take seconds on an idle machine.
const patience = 5 * time.Minute

// folder is the directory in which the user runs the program.
type folder struct {
	t       *testing.T
	program string
	dir     string
}

func newFolder(t *testing.T) folder {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a project and starts a node")
	}
	// The tests must not download anything.
	t.Setenv("GOPROXY", "off")
	t.Setenv("PATH", ascDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("GOTOOLCHAIN", "local")
	t.Setenv("HOSTD_ADDR", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	os.Unsetenv("HOSTD_ADDR") // t.Setenv restores the previous value
	return folder{t, testkit.Program(t), t.TempDir()}
}

// ascDir returns the directory of the AssemblyScript compiler, which npm ci
// installs for the example counter-as, or which HOSTD_TEST_ASC names.
func ascDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../examples/wasm/counter-as/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	if named := os.Getenv("HOSTD_TEST_ASC"); named != "" {
		dir = filepath.Dir(named)
	}
	return dir
}

// hostd runs one command, which must succeed, and returns its output. It skips
// the test if a tool of the language is missing.
func (f folder) hostd(args ...string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.program, args...)
	var talk bytes.Buffer
	cmd.Dir, cmd.Stderr = f.dir, &talk
	out, err := cmd.Output()
	if err != nil && strings.Contains(talk.String(), ": not installed\n") {
		f.t.Skip(talk.String())
	}
	if err != nil {
		f.t.Fatalf("hostd %s: %v\n%s%s", strings.Join(args, " "), err, out, talk.Bytes())
	}
	return string(out)
}

// npm runs npm, which must succeed.
func (f folder) npm(args ...string) {
	f.t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		f.t.Skip("needs npm")
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, args...)
	cmd.Dir = f.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("npm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// dev starts development nodes with additional flags, and returns the URL of
// the first node once it is ready.
func (f folder) dev(args ...string) string {
	f.t.Helper()
	ports := filepath.Join(f.t.TempDir(), "ports.json")
	cmd := exec.Command(f.program, append([]string{"dev", "--listen", "127.0.0.1:0", "--ports-file", ports}, args...)...)
	var talk bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.dir, &talk, &talk
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code is ignored
	}()
	f.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
		<-ended
		if f.t.Failed() {
			f.t.Logf("hostd dev:\n%s", talk.Bytes())
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ports)
		if err == nil {
			var file struct{ Nodes []struct{ API string } }
			if err := json.Unmarshal(text, &file); err != nil {
				f.t.Fatal(err)
			}
			return file.Nodes[0].API
		}
		select {
		case <-ended:
			f.t.Fatal("hostd dev ended")
		default:
		}
		if !errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
			f.t.Fatalf("hostd dev is not ready: %v", err)
		}
	}
}

// TestFirstReply goes from an empty directory to the first reply in each
// language. It logs the elapsed time but checks no limit.
func TestFirstReply(t *testing.T) {
	for _, lang := range []string{"go", "rust", "c", "as", "ts"} {
		t.Run(lang, func(t *testing.T) {
			f := newFolder(t)
			began := time.Now()
			f.hostd("new", "--lang", lang, "lamp")
			f.dir = filepath.Join(f.dir, "lamp")
			if lang == "ts" {
				f.npm("ci", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
			}
			f.hostd("build")
			made := time.Since(began)
			if got := f.hostd("test", "lamp.wasm"); strings.Count(got, "ok  ") != 3 {
				t.Errorf("hostd test: %s", got)
			}
			api := f.dev("--module", "lamp.wasm")
			if got := f.hostd("entity", "send", "counter", "visits", "add", `{"amount":3}`, "--addr", api); got != `{"total":3}`+"\n" {
				t.Errorf("the reply is %q", got)
			}
			took := time.Since(began)
			t.Logf("%s: module after %.1f s, first reply after %.1f s", lang, made.Seconds(), took.Seconds())
			if got := f.hostd("entity", "query", "counter", "visits", "total", "--addr", api); got != `{"total":3}`+"\n" {
				t.Errorf("the answer is %q", got)
			}
			f.page(lang)
		})
	}
}

// pages holds, for each language, the directory of the SDK's README, the
// language tag of its code blocks, and the source file of a project.
var pages = map[string]struct{ dir, mark, source string }{
	"go":   {"go", "go", "main.go"},
	"rust": {"rust", "rust", "src/lib.rs"},
	"c":    {"c", "c", "main.c"},
	"as":   {"assemblyscript", "ts", "assembly/index.ts"},
	"ts":   {"typescript", "ts", "src/index.ts"},
}

// page replaces the project's source and test cases by the source and the test
// cases at the beginning of the SDK's README, and checks that the cases pass.
func (f folder) page(lang string) {
	f.t.Helper()
	of := pages[lang]
	text, err := os.ReadFile(filepath.Join("../../../guest-sdk", of.dir, "README.md"))
	if err != nil {
		f.t.Fatal(err)
	}
	for file, mark := range map[string]string{of.source: of.mark, "cases.yaml": "yaml"} {
		_, block, found := bytes.Cut(text, []byte("```"+mark+"\n"))
		block, _, ends := bytes.Cut(block, []byte("```\n"))
		if !found || !ends {
			f.t.Fatalf("the page of %s has no block of %s", lang, mark)
		}
		path := filepath.Join(f.dir, filepath.FromSlash(file))
		if _, err := os.Stat(path); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(path, block, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	if got := f.hostd("test"); strings.Count(got, "ok  ") != 2 {
		f.t.Errorf("hostd test of the page: %s", got)
	}
}

// TestNewGoProjectPassesItsTest checks that the test of a new project passes.
func TestNewGoProjectPassesItsTest(t *testing.T) {
	f := newFolder(t)
	f.hostd("new", "--lang", "go", "lamp")
	cmd := exec.CommandContext(t.Context(), "go", "test", ".")
	cmd.Dir = filepath.Join(f.dir, "lamp")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test: %v\n%s", err, out)
	}
}
