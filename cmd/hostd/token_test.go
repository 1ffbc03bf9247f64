package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestTokenCreate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	shown := hostd(t, "token", "create", "ci", "--file", file, "-o", "json")
	var first struct{ Token, Line string }
	if err := json.Unmarshal([]byte(shown.out), &first); err != nil || !strings.HasPrefix(first.Token, "hst_") || !strings.HasPrefix(first.Line, "ci:") || strings.Contains(first.Line, first.Token) {
		t.Fatalf("to a file that is not there: %v, %+v", err, shown)
	}
	if err := os.WriteFile(file, []byte(first.Line), 0o600); err != nil { // without a line break
		t.Fatal(err)
	}
	second := hostd(t, "token", "create", "ann@example.org", "--ttl", "1h", "--file", file, "-o", "json")
	var made struct {
		Token, Line string
		Expires     *time.Time
	}
	if err := json.Unmarshal([]byte(second.out), &made); err != nil || made.Expires == nil || time.Until(*made.Expires) > time.Hour || strings.Contains(second.err, made.Token) {
		t.Fatalf("as JSON: %v, %+v", err, second)
	}
	third := hostd(t, "token", "create", "third", "--file", filepath.Join(filepath.Dir(file), "new"))
	if token := strings.TrimSpace(third.out); third.code != cli.ExitDone || !strings.HasPrefix(token, "hst_") || strings.Contains(token, "\n") {
		t.Errorf("with a file: %+v", third)
	}
	if info, err := os.Stat(filepath.Join(filepath.Dir(file), "new")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file that was made: %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != first.Line+"\n"+made.Line+"\n" {
		t.Errorf("the file is %q, %v", text, err)
	}
	for _, args := range []string{"token create", "token create a:b --role viewer", "token create a --ttl -1s --role viewer", "token create a b", "token create a", "token create a --out " + file} {
		if got := hostd(t, strings.Fields(args)...); got.code != cli.ExitUsage || got.out != "" {
			t.Errorf("hostd %s: %+v", args, got)
		}
	}
	secret := filepath.Join(filepath.Dir(file), "ci.token")
	kept := hostd(t, "token", "create", "kept", "--file", file, "--out", secret, "-o", "json")
	token, err := cli.ReadToken(t.Context(), secret)
	if err != nil || kept.code != cli.ExitDone || strings.Contains(kept.out+kept.err, "hst_") || !strings.HasPrefix(token, "hst_") || !strings.Contains(kept.out, "kept:") {
		t.Errorf("to a file: %v, %+v", err, kept)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the token: %v, %v", info.Mode(), err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := hostd(t, "token", "create", "again", "--file", file, "--out", secret); got.code != cli.ExitFailed {
		t.Errorf("to a file that is there: %+v", got)
	}
	if after, err := cli.ReadToken(t.Context(), secret); err != nil || after != token {
		t.Errorf("a file that was there is written over: %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("a line of a token that nobody has: %s, %v", after, err)
	}
	// A token whose hash cannot be stored is removed.
	if got := hostd(t, "token", "create", "lost", "--file", filepath.Dir(file), "--out", secret+"2"); got.code != cli.ExitFailed {
		t.Errorf("with a directory for a file: %+v", got)
	}
	if _, err := os.Stat(secret + "2"); !os.IsNotExist(err) {
		t.Errorf("the file of a token without a line: %v", err)
	}

	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", file}})
	keep := func(name, token string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got := hostd(t, "module", "ls", "--addr", node.API(), "--token-file", secret); got.code != cli.ExitDone || got.err != "" {
		t.Errorf("with the token of --out: %+v", got)
	}
	open := keep("open", token)
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	if got := hostd(t, "module", "ls", "--addr", node.API(), "--token-file", open); got.code != cli.ExitDone || strings.Count(got.err, "other users can read") != 1 {
		t.Errorf("with a file that others can read: %+v", got)
	}
	good, bad := keep("good", made.Token), keep("bad", "hst_"+strings.Repeat("0", 43))
	for _, command := range []string{"module ls", "cluster status", "entity ls counter", "entity get counter a", "setting ls"} {
		args := append(strings.Fields(command), "--addr", node.API())
		if got := hostd(t, args...); got.code != cli.ExitFailed || !strings.Contains(got.err, "--token-file") {
			t.Errorf("hostd %s without a token: %+v", command, got)
		}
		if got := hostd(t, append(args, "--token-file", bad)...); got.code != cli.ExitFailed || strings.Contains(got.err+got.out, "hst_") {
			t.Errorf("hostd %s with a bad token: %+v", command, got)
		}
		// There is no module, so a node that answers not_found has accepted the
		// token.
		if got := hostd(t, append(args, "--token-file", good)...); got.code != cli.ExitDone && !strings.Contains(got.err, "module") {
			t.Errorf("hostd %s with a token: %+v", command, got)
		}
	}
	t.Setenv("HOSTD_TOKEN_FILE", good)
	if got := hostd(t, "module", "ls", "--addr", node.API()); got.code != cli.ExitDone {
		t.Errorf("with HOSTD_TOKEN_FILE: %+v", got)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), keep("two", "a b"), keep("empty", "")} {
		if got := hostd(t, "module", "ls", "--addr", node.API(), "--token-file", path); got.code == cli.ExitDone || !strings.Contains(got.err, "token file") {
			t.Errorf("with the token file %s: %+v", path, got)
		}
	}
}

// TestTokenIsReadFromPipe checks that a command reads the pipe that a shell
// passes for <(COMMAND) once, and waits for it no longer than its timeout.
func TestTokenIsReadFromPipe(t *testing.T) {
	dir := t.TempDir()
	fifo, hashes := filepath.Join(dir, "fifo"), filepath.Join(dir, "tokens")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // unblocks the command that ended without its pipe
		if f, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	})
	made := hostd(t, "token", "create", "ci", "--file", hashes)
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", hashes}})
	// list runs a command while text is written to the pipe. The writer opens
	// the pipe once the command reads it, or never.
	list := func(timeout, text string) outcome {
		t.Helper()
		var writing sync.WaitGroup
		if text != "" {
			writing.Go(func() {
				if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
					_, _ = f.WriteString(text) // the end of a text that is too long isn't read
					f.Close()
				}
			})
			defer writing.Wait()
		}
		return hostd(t, "module", "ls", "--addr", node.API(), "--token-file", fifo, "--timeout", timeout)
	}
	if got := list("1m", made.out); got.code != cli.ExitDone || got.err != "" {
		t.Errorf("through a pipe: %+v", got)
	}
	if got := list("1m", strings.Repeat("a", 1<<20)); got.code != cli.ExitUsage || !strings.Contains(got.err, "larger than") {
		t.Errorf("of a pipe that does not end: %+v", got)
	}
	if got := list("50ms", ""); got.code != cli.ExitUsage || !strings.Contains(got.err, "the file is incomplete") {
		t.Errorf("of a pipe without a writer: %+v", got)
	}
	if got := hostd(t, "module", "ls", "--addr", node.API(), "--token-file", "/dev/zero", "--cacert", "/dev/zero"); got.code != cli.ExitUsage || !strings.Contains(got.err, "larger than") {
		t.Errorf("of a device that does not end: %+v", got)
	}
}

// TestTokensRequireTLS checks that without TLS a token is sent only to this
// machine, unless the flag allows it.
func TestTokensRequireTLS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("hst_x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--addr n1.invalid:7070", cli.ExitUsage, "refusing to send the token"},
		{"--addr http://n1.invalid:7070", cli.ExitUsage, "refusing to send the token"},
		{"--addr 127.0.0.1:1,n1.invalid:7070", cli.ExitUsage, "refusing to send the token"},
		{"--addr 0.0.0.0:1 --insecure-token", cli.ExitFailed, "no node answers"},
		{"--addr https://0.0.0.0:1", cli.ExitFailed, "no node answers"},
		{"--addr 127.0.0.1:1,[::1]:1,localhost:1", cli.ExitFailed, "no node answers"},
	} {
		args := append([]string{"module", "ls", "--timeout", "10s", "--token-file", path}, strings.Fields(c.args)...)
		if got := hostd(t, args...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
}
