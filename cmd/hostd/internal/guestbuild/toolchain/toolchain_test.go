package toolchain

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func file(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("own"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// The project's SDK takes precedence over the embedded one.
func TestSDK(t *testing.T) {
	dir, scratch := t.TempDir(), t.TempDir()
	carried := fstest.MapFS{"src/lib": {Data: []byte("carried")}}
	for _, want := range []string{"carried", "own"} {
		at, err := SDK(dir, scratch, carried)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(at, "src", "lib")); err != nil || string(text) != want {
			t.Errorf("%q, %v", text, err)
		}
		file(t, filepath.Join(dir, sdkDir, "src", "lib"))
	}
	other := t.TempDir()
	file(t, filepath.Join(other, sdkDir))
	if at, err := SDK(other, scratch, carried); err == nil {
		t.Errorf("a file is an SDK: %s", at)
	}
}

func TestSource(t *testing.T) {
	dir := t.TempDir()
	if got, err := Source(dir, ".x", "main.x"); err == nil || !strings.Contains(err.Error(), "0 files *.x") {
		t.Errorf("%s, %v", got, err)
	}
	for _, step := range []struct{ made, want string }{{"b.x", "b.x"}, {"c.y", "b.x"}, {"a.x", ""}, {"main.x", "main.x"}} {
		file(t, filepath.Join(dir, step.made))
		if got, err := Source(dir, ".x", "main.x"); got != step.want || (err != nil) != (step.want == "") {
			t.Errorf("after %s: %s, %v", step.made, got, err)
		}
	}
}

func TestRun(t *testing.T) {
	var log bytes.Buffer
	if err := Run(t.Context(), t.TempDir(), &log, "sh", "-c", "echo said; echo too >&2"); err != nil || log.String() != "said\ntoo\n" {
		t.Errorf("%q, %v", log.String(), err)
	}
	if err := Run(t.Context(), t.TempDir(), &log, "sh", "-c", "exit 3"); err == nil || !strings.Contains(err.Error(), "build with sh: exit status 3") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, t.TempDir(), &log, "sh", "-c", "exit 0"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTail(t *testing.T) {
	var tail Tail
	for range 3 {
		if n, err := tail.Write(bytes.Repeat([]byte("a"), tailBytes)); n != tailBytes || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := tail.Write([]byte("end")); err != nil || !tail.Has("aend") || len(tail.said) != tailBytes {
		t.Errorf("%d bytes, %v", len(tail.said), err)
	}
}
