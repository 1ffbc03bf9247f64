package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestClusterStartsWithFirstAdmin checks that three nodes that require
// credentials from the start accept only the token in their bootstrap files.
// Once there is an admin, the files have no effect.
func TestClusterStartsWithFirstAdmin(t *testing.T) {
	token, file := tokens(t, "first")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["first"], Flags: []string{"--auth", "required", "--auth-bootstrap-file", file}})
	c.Start()
	ctx := t.Context()
	for _, node := range c.Nodes() {
		first := node.Client(client.Options{Timeout: testkit.Patience})
		node.Until("the first admin is known", func() error {
			b, err := first.RoleBindings(ctx)
			if err == nil && (!b.GetEnforced() || len(b.GetBindings()) != 1 || b.GetBindings()[0].GetSubject() != "token:first") {
				err = fmt.Errorf("the bindings are %v", b)
			}
			return err
		})
		if _, err := node.Client(client.Options{Token: authn.NewToken(), Timeout: testkit.Patience}).Modules(ctx); client.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: who is not in the file: %v", node.ID(), err)
		}
	}
	other := authn.NewToken()
	line, err := authn.TokenLine("other", other, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Stop(2)
	c.Node(2).SetFlags(append(c.Node(2).Flags(), "--auth-bootstrap-file", path)...)
	c.Node(2).Start()
	c.Node(2).Until("who is in a file of later is nobody", func() error {
		_, err := c.Node(2).Client(client.Options{Token: other, Timeout: testkit.Patience}).Modules(ctx)
		if client.CodeOf(err) != connect.CodeUnauthenticated {
			return fmt.Errorf("it is answered %v", err)
		}
		return nil
	})
	if _, err := c.Node(2).Client(client.Options{Timeout: testkit.Patience}).Modules(ctx); err != nil {
		t.Error(err)
	}
}

// TestNodeStartsWithClusterTokens checks that a node whose configuration no
// longer has credentials starts as long as it belongs to a cluster, and accepts
// the cluster's tokens.
func TestNodeStartsWithClusterTokens(t *testing.T) {
	token, file := tokens(t, "first")
	n := testkit.NewNode(t, testkit.NodeOptions{Token: token["first"], Flags: []string{"--auth", "required", "--auth-bootstrap-file", file}})
	n.Start()
	n.Until("the first admin is known", func() error {
		_, err := n.Client(client.Options{Timeout: testkit.Patience}).RoleBindings(t.Context())
		return err
	})
	n.Stop()
	n.SetFlags("--auth", "required")
	n.Start()
	if _, err := n.Client(client.Options{Timeout: testkit.Patience}).RoleBindings(t.Context()); err != nil {
		t.Errorf("by a token of the cluster: %v", err)
	}
	if _, err := n.Client(client.Options{Token: authn.NewToken(), Timeout: testkit.Patience}).RoleBindings(t.Context()); client.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("by an unknown token: %v", err)
	}
}

// TestCallersAreRejectedBeforeFirstAdmin checks that nodes that require
// credentials reject all calls until there is an admin, unless they are
// configured to accept them.
func TestCallersAreRejectedBeforeFirstAdmin(t *testing.T) {
	token, file := tokens(t, "ann")
	first, bootstrap := tokens(t, "first")
	n := testkit.NewNode(t, testkit.NodeOptions{Token: token["ann"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "read-only"}})
	n.Start()
	get := func() error {
		_, err := n.Client(client.Options{Timeout: testkit.Patience}).Entity(t.Context(), "counter", "c")
		return err
	}
	if err := get(); client.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "auth-bootstrap-file") {
		t.Errorf("a caller with a credential, while nobody is admin: %v", err)
	}
	n.Stop()
	n.SetFlags("--auth", "required", "--token-file", file, "--admin", "full")
	n.Start()
	if err := get(); client.CodeOf(err) == connect.CodePermissionDenied {
		t.Errorf("with admin full: %v", err)
	}
	n.Stop()
	n.SetFlags("--auth", "required", "--token-file", file, "--admin", "read-only", "--auth-bootstrap-file", bootstrap)
	n.Start()
	n.Until("the first admin is known", func() error {
		_, err := n.Client(client.Options{Token: first["first"], Timeout: testkit.Patience}).RoleBindings(t.Context())
		return err
	})
	if err := get(); client.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a caller without a role: %v", err)
	}
}
