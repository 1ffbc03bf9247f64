// Package pages runs the commands of documentation pages that no other test
// runs. It runs them as they are written, on a cluster of three nodes. It
// contains only tests.
package pages

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const root = "../../.."

// pages has, for each page, the minimum number of commands and texts that the
// output must contain.
var pages = []struct {
	page  string
	least int
	says  []string
}{
	{"docs/guide/coming-from.md", 10, []string{`{"total":3}`, "added"}},
	{"docs/operating/production-checklist.md", 14, []string{"survives the loss of 1 more node", "data-dir: ok", "n3"}},
	{"docs/operating/sizing.md", 4, []string{"nodes: 3, voters of a shard: 3", "visits"}},
	{"docs/reference/version-policy.md", 7, []string{"node n3 ", "cluster version"}},
}

// commands returns the commands of a page: lines with four spaces, outside of
// fenced blocks.
func commands(text string) (out []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if command, ok := strings.CutPrefix(line, "    "); ok && !fenced {
			out = append(out, strings.TrimSpace(command))
		}
	}
	return out
}

// TestCommandsOfPages runs each page's commands from first to last; all must
// succeed. For doctor, warnings count as success, because the machine may have
// few file descriptors or little memory.
func TestCommandsOfPages(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "counter.wasm"), testkit.BuildExample(t, "counter"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "hostd.yaml"), []byte("node-id: n9\nlisten: 127.0.0.1:0\ndata-dir: "+filepath.Join(home, "n9")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	c.AwaitSpread()
	if err := os.Symlink(c.Node(0).Program(), filepath.Join(home, "hostd")); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, n := range c.Nodes() {
		addresses = append(addresses, n.API())
	}
	for _, p := range pages {
		t.Run(filepath.Base(p.page), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, p.page))
			if err != nil {
				t.Fatal(err)
			}
			list := commands(string(text))
			if len(list) < p.least {
				t.Fatalf("the page has %d commands, it had %d: %q", len(list), p.least, list)
			}
			script := strings.Join(list, "\n") + "\n"
			script = strings.ReplaceAll(script, "/etc/hostd/hostd.yaml", "hostd.yaml")
			script = strings.ReplaceAll(script, "hostd doctor\n", "hostd doctor || [ $? -eq 3 ]\n")
			ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
			defer cancel()
			var out bytes.Buffer
			shell := exec.CommandContext(ctx, "bash", "-x", "-e", "-o", "pipefail", "-c", script)
			shell.Dir, shell.Stdout, shell.Stderr, shell.WaitDelay = home, &out, &out, time.Second
			shell.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "HOSTD_ADDR="+strings.Join(addresses, ","), "PATH="+home+string(os.PathListSeparator)+os.Getenv("PATH"))
			if err := shell.Run(); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, says := range p.says {
				if !strings.Contains(out.String(), says) {
					t.Errorf("nothing says %q:\n%s", says, out.String())
				}
			}
		})
	}
}
