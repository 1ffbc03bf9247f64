package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestContexts(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	do := func(want int, args string) outcome {
		t.Helper()
		got := hostd(t, strings.Fields(args)...)
		if got.code != want {
			t.Fatalf("hostd %s: %+v", args, got)
		}
		return got
	}
	token := filepath.Join(config, "token")
	if err := os.WriteFile(token, []byte("hst_x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(cli.ExitDone, "context ls")
	do(cli.ExitDone, "context set one --addr 127.0.0.1:1 --token-file "+token)
	do(cli.ExitDone, "context set two --addr 127.0.0.1:2 --token-file "+token+"x")
	if got := do(cli.ExitDone, "context ls"); !strings.Contains(got.out, "*") || !strings.Contains(got.out, "127.0.0.1:2") {
		t.Errorf("ls: %+v", got)
	}
	if info, err := os.Stat(filepath.Join(config, "hostd", "contexts.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	for args, says := range map[string]string{
		"module ls":                    "no node answers at 127.0.0.1:1",
		"module ls --addr 127.0.0.1:3": "no node answers at 127.0.0.1:3",
		"module ls --context two --token-file " + token: "no node answers at 127.0.0.1:2",
	} {
		if got := do(cli.ExitFailed, args); !strings.Contains(got.err, says) {
			t.Errorf("hostd %s: %+v", args, got)
		}
	}
	// A named context overrides the environment, for the values that it sets.
	t.Setenv("HOSTD_ADDR", "127.0.0.1:5")
	t.Setenv("HOSTD_TOKEN_FILE", token+"env")
	if got := do(cli.ExitFailed, "module ls --context one"); !strings.Contains(got.err, "no node answers at 127.0.0.1:1") {
		t.Errorf("a context's token goes elsewhere, or another's to its nodes: %+v", got)
	}
	if got := do(cli.ExitUsage, "module ls"); !strings.Contains(got.err, token+"env") {
		t.Errorf("the current context beats the environment: %+v", got)
	}
	t.Setenv("HOSTD_CACERT", token+"env")
	if got := do(cli.ExitUsage, "module ls --context one"); !strings.Contains(got.err, "--cacert: open "+token+"env") {
		t.Errorf("a context that says nothing of TLS: %+v", got)
	}
	for _, name := range []string{"HOSTD_ADDR", "HOSTD_TOKEN_FILE", "HOSTD_CACERT"} {
		t.Setenv(name, "")
	}
	// The token file of the other context is read, and does not exist.
	if got := hostd(t, "module", "ls", "--context", "two"); !strings.Contains(got.err, "token file") {
		t.Errorf("with the token of a context: %+v", got)
	}
	do(cli.ExitDone, "context use two")
	if got := hostd(t, "module", "ls", "--addr", "127.0.0.1:3"); !strings.Contains(got.err, "no node answers at 127.0.0.1:3") {
		t.Errorf("an address is given, and the context is looked at: %+v", got)
	}
	for _, wrong := range []string{"context use three", "context rm three", "context set three", "module ls --context three", "module ls --context one --addr 127.0.0.1:4"} {
		do(cli.ExitUsage, wrong)
	}
	do(cli.ExitDone, "context rm two")
	if got := do(cli.ExitDone, "context ls"); strings.Contains(got.out, "*") || strings.Contains(got.out, "two") {
		t.Errorf("ls: %+v", got)
	}
	if _, err := os.Stat(token); err != nil {
		t.Error(err)
	}
}

// TestDevAuthenticatesCallers checks that commands work unchanged and that callers
// without a token are rejected.
func TestDevAuthenticatesCallers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	data := filepath.Join(dir, "data")
	testkit.ShareCache(t, filepath.Join(data, "n1"))
	var token string
	for i, run := range []string{"first", "second"} { // the token is kept
		ports := filepath.Join(dir, run+".json")
		// The mode may be omitted, and may be a separate word.
		asked := [][]string{{"--auth"}, {"--auth", "required"}}[i]
		dev := start(t, append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0", "--shards", "3", "--ports-file", ports, "--module", counterFile(t)}, asked...)...)
		node := dev.ready(t, ports)
		file, err := devcluster.ReadPorts(ports)
		if err != nil || !strings.HasPrefix(file.Token, "hst_") || token != "" && file.Token != token {
			t.Fatalf("the ports file has the token %q, it was %q, %v", file.Token, token, err)
		}
		token = file.Token
		for _, secret := range []string{ports, filepath.Join(data, "token")} {
			if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", secret, info, err)
			}
		}
		eventually(t, "the nodes are ready for commands", func() bool { return strings.Contains(dev.err.String(), "ready after") })
		if got := hostd(t, "entity", "send", "counter", "a", "add", `{"amount":1}`); got.code != cli.ExitDone {
			t.Errorf("a command as it is without --auth: %+v", got)
		}
		if got := hostd(t, "module", "ls", "--addr", node.API); got.code != cli.ExitFailed || !strings.Contains(got.err, "credential") {
			t.Errorf("a command to an address: %+v", got)
		}
		res, err := http.Post(node.API+"/hostd.module.v1.ModuleService/ListModules", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("a stranger: %s", res.Status)
		}
		if said := dev.out.String() + dev.err.String(); strings.Contains(said, token) {
			t.Errorf("the token is told: %s", said)
		}
		dev.interrupt()
		if code := dev.end(t); code != cli.ExitDone {
			t.Errorf("exit code %d", code)
		}
	}
	for args, says := range map[string]string{
		"--auth=allow": `--auth must be none or required, got "allow"`, "--auth allow": `--auth must be none or required, got "allow"`,
		"required": `unexpected argument "required"`, "--auth=none required": `unexpected argument "required"`, "--auth required none": "usage: 'hostd dev'",
	} {
		if got := hostd(t, append([]string{"dev", "--data", data}, strings.Fields(args)...)...); got.code != cli.ExitUsage || !strings.Contains(got.err, says) {
			t.Errorf("dev %s: %+v, want %q", args, got, says)
		}
	}
}
