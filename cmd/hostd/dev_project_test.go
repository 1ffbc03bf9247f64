package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// edit replaces text in a file atomically, as editors do.
func edit(t *testing.T, path string, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !bytes.Contains(text, []byte(pairs[i])) {
			t.Fatalf("%s does not have %q", path, pairs[i])
		}
		text = bytes.ReplaceAll(text, []byte(pairs[i]), []byte(pairs[i+1]))
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// newProject creates a Go project, without fetching anything.
func newProject(t *testing.T) (dir, source string) {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOTOOLCHAIN", "local")
	dir = filepath.Join(t.TempDir(), "lamp")
	if got := hostd(t, "new", "--lang", "go", dir); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	return dir, filepath.Join(dir, "main.go")
}

// TestDevReloadsProject checks that a changed module is served, with the
// existing state. A module that does not build, or that fails on stored
// entities, is reported, and the previous module remains in service.
func TestDevReloadsProject(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a project several times")
	}
	dir, source := newProject(t)
	ports := filepath.Join(t.TempDir(), "ports.json")
	r := start(t, "dev", "--module", dir, "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--ports-file", ports)
	api := r.ready(t, ports).API
	send := func(payload string) outcome {
		return hostd(t, "entity", "send", "counter", "visits", "add", payload, "--addr", api, "--timeout", "1m")
	}
	total := func() string {
		return strings.TrimSpace(hostd(t, "entity", "query", "counter", "visits", "total", "--addr", api, "--timeout", "1m").out)
	}
	said := func(text string) {
		t.Helper()
		eventually(t, "dev says "+text, func() bool { return strings.Contains(r.err.String(), text) })
	}
	if got := send(`{"amount":3}`); got.out != `{"total":3}`+"\n" {
		t.Fatalf("%+v", got)
	}

	// The module computes a different state for existing entities. dev reports
	// it and continues.
	edit(t, source, "s.Total += e.Amount", "s.Total += 2 * e.Amount")
	eventually(t, "the events have the new meaning", func() bool { return total() == `{"total":6}` })
	said("verified counter: 1 entities, 1 events\n")
	said("1 of them have a different state than before, such as visits at event 1")

	edit(t, source, "2 * e.Amount", "3 * e.Sum")
	said("e.Sum undefined")
	said("continues to serve; save a change to try again")

	edit(t, source, "3 * e.Sum", "2 * e.Amount", `"added"`, `"increased"`)
	said("the module fails on 1 of 1 entities of counter: visits at event 1: ")
	if got := total(); got != `{"total":6}` {
		t.Errorf("what does not fit serves: %s", got)
	}

	// Log lines of guests and their faults are shown.
	edit(t, source, `"increased"`, `"added"`, "if cmd.Amount == 0 {", "c.Log(1, \"asked to add\")\n\t\tif cmd.Amount == 13 {\n\t\t\tpanic(\"unlucky\")\n\t\t}\n\t\tif cmd.Amount == 0 {")
	eventually(t, "a third module serves", func() bool { return strings.Count(r.err.String(), " serves counter, ") == 3 })
	if got := send(`{"amount":13}`); got.code != cli.ExitFailed {
		t.Errorf("%+v", got)
	}
	said("counter visits | asked to add")
	said("unlucky")
	if got := total(); got != `{"total":6}` {
		t.Errorf("the state is %s", got)
	}
	r.interrupt()
	if code := r.end(t); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
}

// TestDevWaitsUntilProjectBuilds checks that a project that does not build
// when dev starts is served once it is fixed, and that a directory without a
// project is rejected.
func TestDevWaitsUntilProjectBuilds(t *testing.T) {
	if got := hostd(t, "dev", "--module", t.TempDir()); got.code != cli.ExitUsage || !strings.Contains(got.err, "has no files of a supported language") {
		t.Errorf("%+v", got)
	}
	if testing.Short() {
		t.Skip("builds a project")
	}
	dir, source := newProject(t)
	edit(t, source, "e.Amount", "e.Sum")
	ports := filepath.Join(t.TempDir(), "ports.json")
	r := start(t, "dev", "--module", dir, "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--ports-file", ports)
	api := r.ready(t, ports).API
	if !strings.Contains(r.err.String(), "no module of this project is active") {
		t.Error("it does not say that nothing is served")
	}
	edit(t, source, "e.Sum", "e.Amount")
	eventually(t, "the project is served", func() bool {
		return hostd(t, "entity", "send", "counter", "visits", "add", `{"amount":3}`, "--addr", api).code == 0
	})
}
