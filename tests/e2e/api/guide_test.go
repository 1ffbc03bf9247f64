package api

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/tests/support/testkit"
)

// TestCommandsOfChangingATypeGuide runs the commands of the guide as written,
// from first to last. A command that begins with ! must fail.
func TestCommandsOfChangingATypeGuide(t *testing.T) {
	const root = "../../../"
	page, err := os.ReadFile(root + "docs/guide/changing-a-type.md")
	if err != nil {
		t.Fatal(err)
	}
	script, refusals, code := "set -e -o pipefail\n", 0, ""
	fenced := false
	for line := range strings.Lines(string(page)) {
		command, is := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced:
			code += line
		case is:
			refused, fails := strings.CutPrefix(command, "! ")
			if fails {
				refusals++
				command = fmt.Sprintf("if %s; then exit 9; fi\n", strings.TrimSuffix(refused, "\n"))
			}
			script += command
		}
	}
	if refusals < 4 || strings.Count(script, "hostd ") < 15 {
		t.Fatalf("the page has fewer commands than it had:\n%s", script)
	}
	now, err := os.ReadFile(root + "tests/e2e/entities/orders/now/now.go")
	if err != nil || !strings.Contains(string(now), code) {
		t.Fatalf("the code on the page is not that of the module: %v\n%s", err, code)
	}
	home := t.TempDir()
	for name, version := range map[string]string{
		"order-1": "orders/before", "order-2": "orders/now", "order-swapped": "orders/swapped", "drafts-1": "drafts/before", "drafts-2": "drafts/later",
	} {
		if err := os.WriteFile(filepath.Join(home, name+".wasm"), testkit.BuildGuest(t, "tests/e2e/entities/"+version), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := testkit.StartCluster(t, 1, testkit.ClusterOptions{}).Node(0)
	if err := os.Symlink(n.Program(), filepath.Join(home, "hostd")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
	defer cancel()
	var out bytes.Buffer
	shell := exec.CommandContext(ctx, "bash", "-x", "-c", script)
	shell.Dir, shell.Stdout, shell.Stderr, shell.WaitDelay = home, &out, &out, time.Second
	shell.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "HOSTD_ADDR="+n.API(), "PATH="+home+string(os.PathListSeparator)+os.Getenv("PATH"))
	if err := shell.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, says := range []string{"is now upcast to placed.v2", "was not verified", "the module computes a different state for 1 of 1 verified entities", "placed.v2 (1)", `"sku":"jam"`, "(stored as placed)", `"english":3`, "state.v2 (1)"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("nothing says %q:\n%s", says, out.String())
		}
	}
}
