package modules

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// read returns the content of a signature file; nil if the path is empty.
func read(t *testing.T, path string) []byte {
	t.Helper()
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// digestOf returns the digest of a module file.
func digestOf(t *testing.T, path string) string {
	t.Helper()
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(wasm))
}

// reasonOf returns the reason of an error, which must be permission_denied.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *client.Error
	if !errors.As(err, &e) || e.Code != connect.CodePermissionDenied || e.Reason == "" {
		t.Fatalf("refused by another error than one of a signature: %v", err)
	}
	return e.Reason
}

// TestSignaturesByMode checks three nodes of which the first ignores
// signatures, the second warns, and the third requires them. A node's own mode
// decides about uploads to it, but the modes of all nodes decide about an
// activation.
func TestSignaturesByMode(t *testing.T) {
	trust := filepath.Join(t.TempDir(), "trust")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{NodeFlags: map[int][]string{
		1: {"--module-trust-file", trust, "--module-signatures", "warn"},
		2: {"--module-trust-file", trust, "--module-signatures", "require"},
	}})
	f := newFiles(t, c.Node(0))
	f.trust = trust
	f.write(trust, f.key("release"))
	f.key("stranger")
	c.Start()
	for i, node := range c.Nodes() {
		for kind, want := range map[string]string{"good": "", "missing": "SIGNATURE_MISSING", "untrusted": "SIGNATURE_UNTRUSTED", "bad": "SIGNATURE_BAD"} {
			module := f.module(fmt.Sprintf("%s-%d", kind, i))
			signature := ""
			switch kind {
			case "good":
				signature = f.sign(module, "release")
			case "untrusted":
				signature = f.sign(module, "stranger")
			case "bad":
				signature = f.sign(f.module("another"), "release")
			}
			digest, reason := uploaded(t, node, module, signature, false)
			if i < 2 && reason != "" || i == 2 && reason != want {
				t.Errorf("%s of a node with mode %d: refused by %q", kind, i, reason)
			}
			if reason != "" {
				if _, err := os.Stat(file(node, digestOf(t, module))); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s of a node with mode %d: the rejected module is stored: %v", kind, i, err)
				}
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			described, err := c.Node(2).Client(client.Options{}).Module(ctx, digest)
			if m := described.GetModule(); err != nil || m.GetSignatureFault() != want || (m.GetSignedBy() == "release") != (want == "") {
				t.Errorf("%s of a node with mode %d is described as signed by %q, fault %q, %v", kind, i, m.GetSignedBy(), m.GetSignatureFault(), err)
			}
			_, err = node.Client(client.Options{}).Activate(ctx, fmt.Sprintf("%s-%d", kind, i), digest)
			cancel()
			if reason := reasonOf(t, err); reason != want {
				t.Errorf("%s is activated through a node with mode %d: refused by %q", kind, i, reason)
			}
		}
	}
	if !strings.Contains(c.Node(1).Log(), "this node does not trust a module's signature") {
		t.Error("the node that warns has warned of nothing")
	}
}

// TestUnsignedModuleIsNotRunAfterStart checks that nodes that require signatures start
// in a cluster with an active unsigned module, but do not run that module. Adding a
// signature later, and removing a key from the trust file, take effect at once.
func TestUnsignedModuleIsNotRunAfterStart(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	f := newFiles(t, c.Node(0))
	release := f.key("release")
	f.write(f.trust, release)
	signed, unsigned := f.module("vouched"), f.module("plain")
	f.push(c.Node(0), signed, f.sign(signed, "release"))
	f.push(c.Node(0), unsigned, "")
	send := func(n *testkit.Node, entityType, id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience/4)
		defer cancel()
		// One attempt, because the client would retry an unavailable call.
		_, err := entityv1connect.NewEntityServiceClient(http.DefaultClient, n.API()).SendCommand(ctx, connect.NewRequest(&entityv1.SendCommandRequest{
			EntityType: entityType, EntityId: id, Command: "any", Payload: &entityv1.SendCommandRequest_Data{Data: []byte("x")},
		}))
		return err
	}
	for i := range 3 {
		for _, name := range []string{"vouched", "plain"} {
			if err := send(c.Node(i), name, fmt.Sprint(i)); err != nil {
				t.Fatalf("%s before it is asked for: %v", name, err)
			}
		}
	}
	for _, n := range c.Nodes() {
		n.SetFlags(append(n.Flags(), "--module-trust-file", f.trust, "--module-signatures", "require")...)
	}
	c.StopAll()
	c.Start()
	served := func(entityType string, want bool) {
		t.Helper()
		for i, n := range c.Nodes() {
			n.Until(fmt.Sprintf("%s is served: %v", entityType, want), func() error {
				err := send(n, entityType, fmt.Sprint(i))
				if (err == nil) != want {
					return fmt.Errorf("a command: %v", err)
				}
				// Another node may have executed the command. This node may reload the
				// trust file at a different time.
				metrics, says := n.Metrics(), ready(t, n)
				fault := metrics[`hostd_type_signature_faults{entity_type="`+entityType+`",reason="SIGNATURE_MISSING"}`] +
					metrics[`hostd_type_signature_faults{entity_type="`+entityType+`",reason="SIGNATURE_UNTRUSTED"}`]
				if (fault == 0) != want || strings.Contains(says, entityType+" (SIGNATURE_") == want {
					return fmt.Errorf("readyz says %q, metric %v", says, fault)
				}
				return nil
			})
		}
	}
	served("plain", false)
	served("vouched", true)
	for _, n := range c.Nodes() {
		if !strings.Contains(n.Log(), "this node does not trust its module's signature") {
			t.Errorf("the log of %s does not name the type", n.ID())
		}
	}
	f.push(c.Node(1), unsigned, f.sign(unsigned, "release"), "--no-activate")
	served("plain", true)
	f.write(f.trust, f.key("next"))
	served("vouched", false)
	f.write(f.trust, "# it must not count: a line is wrong\nrelease\n")
	served("vouched", false)
	f.write(f.trust, release)
	served("vouched", true)
}

// TestUntrustedModuleIsNotRun checks that a module whose signature is no longer
// trusted is not run on entities even if it is not active: neither by a
// verification nor by a compatibility check, whether the check is requested or
// part of an activation.
func TestUntrustedModuleIsNotRun(t *testing.T) {
	node := testkit.NewNode(t, testkit.NodeOptions{})
	f := newFiles(t, node)
	release, former := f.key("release"), f.key("former")
	f.write(f.trust, release+former)
	node.SetFlags("--module-trust-file", f.trust, "--module-signatures", "require")
	node.Start()
	serves := f.module("kept")
	f.push(node, serves, f.sign(serves, "release"))
	f.write(f.path("kept.wasm"), string(guest.Module{Good: "kept", Bad: "other"}.Build()))
	digest, reason := uploaded(t, node, serves, f.sign(serves, "former"), false)
	if reason != "" {
		t.Fatalf("refused by %s", reason)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if _, err := node.Client(client.Options{}).Send(ctx, client.Command{EntityType: "kept", EntityID: "e", Name: "any"}); err != nil {
		t.Fatal(err)
	}
	modules := modulev1connect.NewModuleServiceClient(http.DefaultClient, node.API())
	attempts := map[string]func() error{
		"verify": func() error {
			stream, err := modules.VerifyModule(ctx, connect.NewRequest(&modulev1.VerifyModuleRequest{EntityType: "kept", Digest: digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}))
			if err != nil {
				return err
			}
			defer stream.Close()
			for stream.Receive() {
			}
			return stream.Err()
		},
		"compare": func() error {
			_, err := modules.CheckCompatibility(ctx, connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "kept", Digest: digest}))
			return err
		},
		"begin a rollout": func() error {
			_, err := modules.ActivateModule(ctx, connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "kept", Digest: digest, Rollout: &modulev1.RolloutPlan{Share: 1}}))
			return err
		},
		"activate": func() error {
			_, err := modules.ActivateModule(ctx, connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "kept", Digest: digest}))
			return err
		},
	}
	for _, what := range []string{"verify", "compare"} {
		if err := attempts[what](); err != nil {
			t.Fatalf("%s while the key is trusted: %v", what, err)
		}
	}
	f.write(f.trust, release)
	node.Until("the key is trusted no more", func() error {
		m, err := node.Client(client.Options{}).Module(ctx, digest)
		if err == nil && m.GetModule().GetSignatureFault() == "" {
			err = errors.New("its signature counts")
		}
		return err
	})
	for what, attempt := range attempts {
		if err := attempt(); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "does not trust") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
