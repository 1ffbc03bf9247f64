package guest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestMain lets the test binary also run as the child process of a test,
// which compiles or misbehaves.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "compile-child":
			os.Exit(CompileChild(os.Stdin, os.Stderr))
		case "hang":
			time.Sleep(time.Hour)
		case "crash":
			panic("a crash on purpose")
		case "flood":
			os.Stderr.Write(make([]byte, 1<<20))
			os.Exit(compileRefused)
		}
	}
	if len(os.Args) == 3 && os.Args[1] == "compile-child" {
		os.Exit(compileAtGate(os.Args[2]))
	}
	os.Exit(testkit.Main(m))
}

func childOptions(t *testing.T, mode string) Options {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{CacheDir: t.TempDir(), CompileCommand: []string{program, mode}}
}

func cacheFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestChildFillsTheCache(t *testing.T) {
	opts := childOptions(t, "compile-child")
	e := newEngine(t, opts)
	parsed, err := admit((&testGuest{}).build(), e.limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.child.Compile(t.Context(), parsed.Prepare()); err != nil {
		t.Fatal(err)
	}
	files := cacheFiles(t, opts.CacheDir)
	if len(files) != 1 {
		t.Fatalf("the child left %v", files)
	}
	m := mustCompile(t, e, (&testGuest{}).build())
	if _, err := instantiate(t, m).Handle(0, []byte("x"), Env{}); err != nil {
		t.Error(err)
	}
	if again := cacheFiles(t, opts.CacheDir); len(again) != 1 || again[0] != files[0] {
		t.Errorf("this process did not take the child's result: %v", again)
	}
}

func TestChildRejectsModules(t *testing.T) {
	bad := (&testGuest{bodies: map[string][]byte{abi.ExportDrop: i32c(1)}}).build()
	refusal := func(opts Options, wasm []byte) string {
		t.Helper()
		_, err := newEngine(t, opts).Compile(t.Context(), [32]byte{}, wasm)
		var refused *AdmissionError
		if !errors.As(err, &refused) || refused.Where != "code" {
			t.Fatalf("got %v, want an *AdmissionError", err)
		}
		return refused.Reason
	}
	inside, outside := refusal(Options{}, bad), refusal(childOptions(t, "compile-child"), bad)
	if inside != outside {
		t.Errorf("the child says %q, this process %q", outside, inside)
	}
	valid := (&testGuest{}).build()
	var log bytes.Buffer
	crashing := childOptions(t, "crash")
	crashing.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if got := refusal(crashing, valid); !strings.Contains(got, "crashed") || strings.Contains(got, "on purpose") {
		t.Errorf("a crash is reported as %q", got)
	}
	if !strings.Contains(log.String(), "on purpose") {
		t.Errorf("the log does not mention the crash: %q", log.String())
	}
	if got := refusal(childOptions(t, "flood"), valid); len(got) > 1000 {
		t.Errorf("the child's text is not bounded: %d bytes", len(got))
	}
	hanging := childOptions(t, "hang")
	hanging.CompileTimeout = time.Second
	_, err := newEngine(t, hanging).Compile(t.Context(), [32]byte{}, valid)
	var refused *AdmissionError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) {
		t.Errorf("a timeout is reported as %v", err)
	}
}

// TestInterruptedCompilationLeavesNothing checks that opening the cache removes
// the temporary files of a killed compiler.
func TestInterruptedCompilationLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	mustCompile(t, newEngine(t, Options{CacheDir: dir}), (&testGuest{}).build())
	files := cacheFiles(t, dir)
	leftover := files[0] + ".123.tmp"
	if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	newEngine(t, Options{CacheDir: dir})
	if again := cacheFiles(t, dir); len(again) != 1 || again[0] != files[0] {
		t.Errorf("the cache holds %v", again)
	}
}

func TestChildStartFailureIsNotRejection(t *testing.T) {
	opts := childOptions(t, "")
	opts.CompileCommand = []string{filepath.Join(t.TempDir(), "absent")}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"absent program": t.Context(), "ended context": ended} {
		_, err := newEngine(t, opts).Compile(ctx, [32]byte{}, (&testGuest{}).build())
		var refused *AdmissionError
		if err == nil || errors.As(err, &refused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
