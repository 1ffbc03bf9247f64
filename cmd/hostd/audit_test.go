package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/testkit"
)

// A node that authenticates callers keeps its audit log across restarts, and
// the command detects a changed line.
func TestAuditLog(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "tokens"), func(name string) string { return filepath.Join(dir, name+".token") }
	for _, name := range []string{"ann", "eve"} {
		if got := hostd(t, "token", "create", name, "--file", file, "--out", secret(name)); got.code != cli.ExitDone {
			t.Fatalf("%+v", got)
		}
	}
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--admin", "full", "--auth", "required", "--token-file", file}})
	for _, c := range []struct {
		who, args string
		code      int
	}{
		{"ann", "binding put token:ann admin", cli.ExitDone},
		{"eve", "setting put a 5", cli.ExitFailed}, // she has no role
		{"ann", "module push " + counterFile(t), cli.ExitDone},
		{"ann", "entity send counter c1 add {\"amount\":4141414141}", cli.ExitDone},
		{"ann", "entity delete counter c1", cli.ExitDone},
	} {
		args := append(strings.Fields(c.args), "--addr", node.API())
		if got := hostd(t, append(args, "--token-file", secret(c.who))...); got.code != c.code {
			t.Errorf("%s: %+v", c.args, got)
		}
		if got := hostd(t, args...); got.code != cli.ExitFailed {
			t.Errorf("%s without a token: %+v", c.args, got)
		}
	}
	log := filepath.Join(node.DataDir(), "audit", "audit.log")
	node.Stop()
	node.Start()
	node.Stop()
	type report struct {
		Lines, Lost uint64
		Head        string
	}
	first := hostd(t, "audit", "verify", log, "-o", "json")
	r := decode[report](t, first.out)
	if first.code != cli.ExitDone || r.Lines < 8 || r.Lost != 0 || len(r.Head) != 64 {
		t.Errorf("%+v", first)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"name":"ann"`, `"target":"activate=true","result":"digest=`, `"verb":"settings"`, `"code":"permission_denied"`, `"verb":"operate","type":"counter","id":"c1"`, `"code":"unauthenticated","reason":"missing"`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no line has %s:\n%s", want, text)
		}
	}
	for _, never := range []string{"hst_", "4141414141", `"verb":"invoke","type"`} { // credentials, payloads, and calls that change nothing in the cluster
		if bytes.Contains(text, []byte(never)) {
			t.Errorf("a line has %s:\n%s", never, text)
		}
	}
	if got := hostd(t, "audit", "verify", log, "--head", r.Head); got.code != cli.ExitDone {
		t.Errorf("with the head: %+v", got)
	}
	if err := os.WriteFile(log, bytes.Replace(text, []byte(`"name":"ann"`), []byte(`"name":"bob"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := hostd(t, "audit", "verify", log); got.code != cli.ExitFailed || !strings.Contains(got.err, "audit.log:") {
		t.Errorf("a changed line: %+v", got)
	}
	if got := hostd(t, "audit", "verify", filepath.Join(dir, "none")); got.code != cli.ExitFailed || !strings.Contains(got.err, "audit-file") {
		t.Errorf("no log: %+v", got)
	}
}
