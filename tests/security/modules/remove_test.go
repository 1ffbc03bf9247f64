package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// file returns the path of a module's file on a node.
func file(n *testkit.Node, digest string) string {
	return filepath.Join(n.DataDir(), "modules", digest+".wasm")
}

// age sets the time of a module's file to long ago.
func age(t *testing.T, n *testkit.Node, digest string) {
	t.Helper()
	old := time.Now().Add(-3 * time.Hour)
	if err := os.Chtimes(file(n, digest), old, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestUnneededModuleIsRemoved checks that a module that nothing needs is removed
// permanently from all nodes, but not active modules and targets of rollbacks.
// A module that is uploaded again meanwhile stays, and a missing file is
// fetched from another node.
func TestUnneededModuleIsRemoved(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	f := newFiles(t, c.Node(0))
	ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
	defer cancel()
	first, _ := uploaded(t, c.Node(0), f.module("served"), "", true)
	f.write(f.path("second.wasm"), string(varied(t, f.module("served"))))
	second, _ := uploaded(t, c.Node(0), f.path("second.wasm"), "", true)
	unused, _ := uploaded(t, c.Node(1), f.module("unused"), "", false)
	for digest, says := range map[string]string{second: "serves entity type served", first: "rollback of entity type served"} {
		out, code := c.Node(2).Run("module", "rm", digest, "--addr", c.Node(2).Address())
		if code == 0 || !strings.Contains(out, says) {
			t.Errorf("what is needed is removed, or it is not said what for: %d, %s", code, out)
		}
	}
	f.run("module", "rm", unused, "--addr", c.Node(2).Address())
	gone := func(digest string) {
		t.Helper()
		for _, n := range c.Nodes() {
			n.Until("the module is unknown", func() error {
				_, err := n.Client(client.Options{}).Module(ctx, digest)
				if client.CodeOf(err) != connect.CodeNotFound {
					return fmt.Errorf("the module: %v", err)
				}
				return nil
			})
		}
	}
	gone(unused)
	c.StopAll()
	for _, n := range c.Nodes() {
		for _, digest := range []string{first, second, unused} {
			age(t, n, digest)
		}
	}
	if err := os.Remove(file(c.Node(1), second)); err != nil {
		t.Fatal(err)
	}
	c.Start()
	gone(unused)
	for _, n := range c.Nodes() {
		n.Until("a file that was lost is there again", func() error {
			_, a := os.Stat(file(n, first))
			_, b := os.Stat(file(n, second))
			return errors.Join(a, b)
		})
	}
	// The module is uploaded, removed and uploaded again at once: it must stay.
	for range 3 {
		if again, _ := uploaded(t, c.Node(0), f.path("unused.wasm"), "", false); again != unused {
			t.Fatalf("uploaded again as %s", again)
		}
		for _, n := range c.Nodes() {
			age(t, n, unused)
		}
		if err := client.RemoveModule(ctx, c.Node(1).Client(client.Options{}), unused); err != nil {
			t.Fatal(err)
		}
	}
	if _, reason := uploaded(t, c.Node(2), f.path("unused.wasm"), "", true); reason != "" {
		t.Fatal(reason)
	}
	for _, n := range c.Nodes() {
		n.Until("the module is on each node", func() error {
			_, err := os.Stat(file(n, unused))
			return err
		})
	}
}

// varied returns the module in a file with an additional custom section, so
// that its digest differs.
func varied(t *testing.T, path string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return append(wasm, 0, 2, 1, 'x') // a custom section
}
