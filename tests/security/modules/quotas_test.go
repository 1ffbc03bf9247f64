package modules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// stored returns the number of module files of a node.
func stored(t *testing.T, n *testkit.Node) int {
	t.Helper()
	files, err := filepath.Glob(file(n, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestRemovedModulesTakeRoom checks that a caller who uploads and removes
// different modules in a loop fills the disks of the nodes only up to the quota,
// although the removed modules no longer count.
func TestRemovedModulesTakeRoom(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	f := newFiles(t, c.Node(0))
	wasm, err := os.ReadFile(f.module("looped"))
	if err != nil {
		t.Fatal(err)
	}
	f.run("setting", "put", "module-quota-bytes", fmt.Sprint(3*len(wasm)), "--addr", c.Node(0).Address())
	client0 := c.Node(0).Client(client.Options{})
	for i := range 5 {
		m, err := client.UploadModule(t.Context(), client0, &modulev1.UploadModuleRequest{Wasm: append(slices.Clip(wasm), 0, 2, 1, byte('a'+i))})
		if i < 3 && err == nil {
			err = client.RemoveModule(t.Context(), client0, m.GetDigest())
		}
		if i < 3 && err != nil || i > 2 && client.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatalf("upload %d: %v", i, err)
		}
	}
	for i, n := range c.Nodes() {
		if got := stored(t, n); got > 3 {
			t.Errorf("node %d has %d files of 3 modules", i, got)
		}
	}
}

// TestModuleQuotasAreSettings checks that a quota below the current usage
// rejects new modules, removes none, and is shown.
func TestModuleQuotasAreSettings(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	f := newFiles(t, node)
	ctx := t.Context()
	c := node.Client(client.Options{})
	uploaded(t, node, f.module("first"), "", true)
	uploaded(t, node, f.module("second"), "", true)
	shows := func(pattern string) {
		t.Helper()
		if out := f.run("module", "quotas", "--addr", node.Address()); !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("it is not shown that %s:\n%s", pattern, out)
		}
	}
	shows(`number +2 +4096 +module-quota-count`)
	shows(`unused modules +720h0m0s +module-retention`)
	push := func(entityType string, want connect.Code) {
		t.Helper()
		_, err := client.UploadModule(ctx, c, &modulev1.UploadModuleRequest{Wasm: guest.Module{Good: entityType}.Build()})
		if err == nil && want == 0 {
			return
		}
		if got := client.CodeOf(err); err == nil || got != want {
			t.Errorf("pushed %s: %v, want %v", entityType, err, want)
		}
	}
	for key, values := range map[string][2]string{"module-quota-count": {"1", "3"}, "module-quota-bytes": {"1", "64MiB"}} {
		f.run("setting", "put", key, values[0], "--addr", node.Address())
		shows(key)
		push("third", connect.CodeResourceExhausted)
		if got := stored(t, node); got != 2 {
			t.Errorf("%s: %d files of 2 modules: a rejected module was stored", key, got)
		}
		push("first", 0)
		f.run("setting", "put", key, values[1], "--addr", node.Address())
	}
	shows(`number +2 +3 `)
	shows(`bytes +\d+ +67108864 `)
	push("third", 0)
	push("fourth", connect.CodeResourceExhausted)
	f.run("setting", "put", "module-retention", "off", "--addr", node.Address())
	shows(`unused modules +forever`)
	if out, code := node.Run("setting", "put", "module-quota-count", "many", "--addr", node.Address()); code == 0 {
		t.Errorf("a quota that is no number is taken: %s", out)
	}
}
