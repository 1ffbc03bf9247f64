package modules

import (
	"regexp"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

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
