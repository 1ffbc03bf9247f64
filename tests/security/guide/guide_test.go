// Package guide runs the commands of the security guide, as written on the
// page, on real nodes. It contains only tests.
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

// commands returns the command blocks of the page as a bash script that ends at
// the first failing command. A command that begins with ! must fail.
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

// TestGuideCommands runs the commands from first to last, and checks that they
// have the effects that the page describes.
func TestGuideCommands(t *testing.T) {
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
	// The script differs from the page in the addresses and the identity
	// provider.
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
	// The nodes belong to the shell's process group, and end with it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = time.Second
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
	// The nodes write errors to their own log files. They keep only the shell's
	// pipe for standard output open, and print nothing to it.
	err := shell.Wait()
	if err != nil && shell.ProcessState.ExitCode() != 0 {
		logs, _ := filepath.Glob(filepath.Join(home, "*", "n*.log"))
		for _, name := range logs {
			text, _ := os.ReadFile(name)
			t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
		}
		t.Fatalf("%v\n%s", err, out.String())
	}
	// The commands that must fail are rejected with the reasons on the page.
	for _, want := range []string{"unauthenticated", "permission_denied"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing was refused as %s:\n%s", want, out.String())
		}
	}
}
