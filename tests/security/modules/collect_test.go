package modules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestUnneededModulesAreRemovedLater checks that three nodes remove a module after
// it has not been needed for the configured time, and record that in the audit
// log. Active modules and the targets of rollbacks stay. Before the removal,
// the list of modules shows since when a module has not been needed.
func TestUnneededModulesAreRemovedLater(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Flags: []string{"--audit=changes"}})
	f := newFiles(t, c.Node(0))
	ctx := t.Context()
	set := func(value string) {
		t.Helper()
		f.run("setting", "put", "module-retention", value, "--addr", c.Node(1).Address())
	}
	first, _ := uploaded(t, c.Node(0), f.module("served"), "", true)
	f.write(f.path("second.wasm"), string(varied(t, f.module("served"))))
	second, _ := uploaded(t, c.Node(0), f.path("second.wasm"), "", true)
	unused, _ := uploaded(t, c.Node(1), f.module("unused"), "", false)
	for _, n := range c.Nodes() {
		n.Until("it is said since when nothing needs the module", func() error {
			m, err := n.Client(client.Options{}).Module(ctx, unused)
			if err == nil && m.GetModule().GetUnusedSince() == nil {
				err = fmt.Errorf("it is needed: %v", m.GetModule())
			}
			return err
		})
	}
	if out, code := c.Node(0).Run("setting", "put", "module-retention", "a while", "--addr", c.Node(0).Address()); code == 0 {
		t.Errorf("a setting that says nothing is taken: %s", out)
	}
	set("1s")
	for _, n := range c.Nodes() {
		n.Until("the module is unknown", func() error {
			if _, err := n.Client(client.Options{}).Module(ctx, unused); client.CodeOf(err) != connect.CodeNotFound {
				return fmt.Errorf("the module: %v", err)
			}
			return nil
		})
	}
	for digest, need := range map[string]string{first: "a rollback comes back to", second: "serves"} {
		m, err := c.Node(2).Client(client.Options{}).Module(ctx, digest)
		if err != nil || m.GetModule().GetUnusedSince() != nil {
			t.Errorf("the module that %s: %v, %v", need, m.GetModule(), err)
		}
	}
	c.Node(0).Until("a node has said so in its account", func() error {
		for _, n := range c.Nodes() {
			text, err := os.ReadFile(filepath.Join(n.DataDir(), "audit", "audit.log"))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, `"kind":"node"`) && strings.Contains(line, "digest="+unused) && strings.Contains(line, "/DeleteModule") {
					return nil
				}
			}
		}
		return fmt.Errorf("no line of any node")
	})
	set("off")
	if again, _ := uploaded(t, c.Node(2), f.path("unused.wasm"), "", true); again != unused {
		t.Errorf("uploaded again as %s", again)
	}
}
