// Package guide runs the commands of the guide to security, as they are on the
// page, on real nodes. It has tests only.
package guide

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
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

const (
	root = "../../.."
	page = "docs/operating/security-guide.md"
)

// commands are the page's blocks of commands as a script for bash that ends
// with the first that fails. One that begins with ! has to fail.
func commands(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e -o pipefail\n"
	for line := range strings.Lines(string(text)) {
		line, isCommand := strings.CutPrefix(line, "    ")
		if !isCommand {
			continue
		}
		if refused, ok := strings.CutPrefix(line, "! "); ok {
			refused = strings.TrimSuffix(refused, "\n")
			line = fmt.Sprintf("echo %s; if %s; then echo NOT REFUSED; exit 9; fi\n", quoted("! "+refused), refused)
		} else if !strings.Contains(script, "<<END\n") || strings.Count(script, "<<END\n") == strings.Count(script, "\nEND\n") {
			if !strings.HasPrefix(line, "for ") && !strings.HasPrefix(line, "done") && line != "END\n" {
				line = "echo " + quoted("$ "+strings.TrimSuffix(line, "\n")) + "\n" + line
			}
		}
		script += line
	}
	return script
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// TestEveryCommandOfTheGuide: they do what the page says, from the first to the
// last.
func TestEveryCommandOfTheGuide(t *testing.T) {
	script := commands(t)
	for what, n := range map[string]int{"hostd serve": 3, "\necho '! ": 10, "hostd ": 50} {
		if strings.Count(script, what) < n {
			t.Fatalf("%q is fewer than %d times among the commands of the page:\n%s", what, n, script)
		}
	}
	p := newProvider(t)
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "tokens"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, groups := range map[string][]string{"kim": nil, "ann": {"team-a"}, "bob": {"team-b"}, "olga": {"operators"}, "aude": {"auditors"}} {
		if err := os.WriteFile(filepath.Join(home, "tokens", name), []byte(p.token(name, groups...)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// What differs from the page: whose addresses they are, and the provider's.
	script = strings.ReplaceAll(script, "127.7.1.", fmt.Sprintf("127.%d.%d.", 8+rand.IntN(200), 1+rand.IntN(250)))
	script = strings.ReplaceAll(script, "https://accounts.example.org", p.URL)

	ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
	defer cancel()
	var out bytes.Buffer
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir, shell.Stdout, shell.Stderr = root, &out, &out
	shell.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CONFIG_HOME=")
	for _, key := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GONOSUMDB", "GOENV"} {
		value, err := exec.CommandContext(ctx, "go", "env", key).Output()
		if err != nil {
			t.Fatal(err)
		}
		shell.Env = append(shell.Env, key+"="+strings.TrimSpace(string(value)))
	}
	shell.Env = append(shell.Env, "GOFLAGS=-buildvcs=false")
	// The nodes are of the shell's group, and end with it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = time.Second
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
	// The nodes have their own place for errors, and none of the shell's pipes
	// outlives it but theirs for what they print, which is nothing.
	err := shell.Wait()
	if err != nil && shell.ProcessState.ExitCode() != 0 {
		logs, _ := filepath.Glob(filepath.Join(home, "*", "n*.log"))
		for _, name := range logs {
			text, _ := os.ReadFile(name)
			t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
		}
		t.Fatalf("%v\n%s", err, out.String())
	}
	// Every command is refused for the reason that the page gives.
	for _, want := range []string{"unauthenticated", "permission_denied"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing was refused as %s:\n%s", want, out.String())
		}
	}
}
