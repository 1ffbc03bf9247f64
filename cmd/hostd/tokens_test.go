package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestClusterTokenGrantsItsRole checks that the cluster stores the hash of a token
// from the command line, and that its bearer has the role.
func TestClusterTokenGrantsItsRole(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if got := hostd(t, "token", "create", "root", "--file", in("tokens"), "--out", in("root")); got.code != cli.ExitDone {
		t.Fatalf("%+v", got)
	}
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", in("tokens"), "--admin", "full"}})
	for _, tt := range []struct {
		as, args string
		code     int
		says     string // expected on stdout or stderr
	}{
		{"root", "token create early --role viewer --out " + in("early"), cli.ExitDone, "there is no admin: role checks are off, and every accepted caller has all rights; 'hostd binding put"},
		{"root", "binding put token:early viewer", cli.ExitDone, "there is no admin: role checks are off"},
		{"root", "token rm early", cli.ExitDone, "has no token early"},
		{"root", "binding put token:root admin", cli.ExitDone, "revision"},
		{"root", "auth whoami", cli.ExitDone, "token:root  -       admin"},
		{"root", "token create ci", cli.ExitUsage, "set --role"},
		{"root", "token create ci --role viewer --file " + in("tokens"), cli.ExitUsage, "set only one of them"},
		{"root", "token create ci --role viewer --ttl 1h --out " + in("ci"), cli.ExitDone, "token:ci, revision"},
		{"root", "token create ci --role viewer --out " + in("ci"), cli.ExitFailed, "exists"},
		{"root", "token create ci --role viewer --out " + in("again"), cli.ExitFailed, "a token named ci exists already"},
		{"root", "token create cd --role nobody --out " + in("again"), cli.ExitFailed, "role nobody does not exist"},
		{"root", "token create root --role viewer --out " + in("again"), cli.ExitFailed, "the token file of this node has a token of that name"},
		{"ci", "auth whoami", cli.ExitDone, "token:ci  -       viewer"},
		{"ci", "token ls", cli.ExitFailed, "lacks the verb security"},
		{"ci", "token create cd --role viewer --out " + in("again"), cli.ExitFailed, "lacks the verb security"},
		{"root", "token ls", cli.ExitDone, "ci    viewer"},
		{"root", "token ls -o json", cli.ExitDone, `"tokenName": "ci"`},
		{"root", "token rm a:b", cli.ExitUsage, "letters, digits"},
		{"root", "token rm ci", cli.ExitDone, "has no token ci"},
		{"ci", "auth whoami", cli.ExitFailed, "not valid"},
		{"root", "binding get token:ci", cli.ExitFailed, "has no roles"},
	} {
		got := hostd(t, append(strings.Fields(tt.args), "--addr", node.API(), "--token-file", in(tt.as))...)
		if got.code != tt.code || !strings.Contains(got.out+got.err, tt.says) || strings.Contains(got.out+got.err, "hst_") {
			t.Errorf("hostd %s, as %s: exit code %d, want %d with %q\n%s%s", tt.args, tt.as, got.code, tt.code, tt.says, got.out, got.err)
		}
	}
	if _, err := os.Stat(in("again")); !os.IsNotExist(err) {
		t.Errorf("the file of a token that nobody knows: %v", err)
	}
	shown := hostd(t, "token", "create", "cd", "--role", "viewer", "--role", "invoker", "-o", "json", "--addr", node.API(), "--token-file", in("root"))
	var made struct {
		Token, Line string
		Roles       []string
	}
	if err := json.Unmarshal([]byte(shown.out), &made); err != nil || !strings.HasPrefix(made.Token, "hst_") || made.Line != "" || len(made.Roles) != 2 || strings.Contains(shown.err, made.Token) || strings.Contains(shown.err, "all rights") {
		t.Errorf("as JSON: %v, %+v", err, shown)
	}
	if text, err := os.ReadFile(filepath.Join(node.DataDir(), "audit", "audit.log")); err != nil || !strings.Contains(string(text), "token_name=cd") || strings.Contains(string(text), made.Token) {
		t.Errorf("the audit log has %v, and its line %v, %v", strings.Contains(string(text), made.Token), strings.Contains(string(text), "token_name=cd"), err)
	}
}
