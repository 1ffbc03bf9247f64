package security

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestArchiveKeepsSignersAndPrincipals checks that a cluster restored from an
// archive has the signatures of its modules and the principals of its events.
// If the cluster has an admin, its own roles apply, not the roles of the
// archive.
func TestArchiveKeepsSignersAndPrincipals(t *testing.T) {
	token, file := tokens(t, "root", "ann", "bo")
	dir := t.TempDir()
	trust, module, key, signature := filepath.Join(dir, "trust"), filepath.Join(dir, "deed.wasm"), filepath.Join(dir, "release.key"), filepath.Join(dir, "deed.sig")
	wasm := testkit.BuildGuest(t, "tests/security/guest")
	if err := os.WriteFile(module, wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(id string) *testkit.Node {
		return testkit.NewNode(t, testkit.NodeOptions{ID: id, Token: token["root"], Flags: []string{
			"--auth", "required", "--token-file", file, "--admin", "full", "--module-trust-file", trust, "--module-signatures", "require"}})
	}
	before, after := node("n1"), node("m1")
	line, exit := before.Run("module", "keygen", "--out", key)
	if exit != 0 {
		t.Fatal(line)
	}
	if err := os.WriteFile(trust, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, exit := before.Run("module", "sign", module, "--key", key, "--out", signature); exit != 0 {
		t.Fatal(out)
	}
	text, err := os.ReadFile(signature)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
	defer cancel()
	call := calls(t, ctx)

	before.Start()
	root := before.Client(client.Options{Token: token["root"], Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	bind(t, root, "token:ann", "invoker", "viewer")
	up, err := client.UploadSigned(ctx, root, wasm, signed, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := call(before.API(), token["ann"], "").take("d1"); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := root.Export(ctx, &archive); err != nil {
		t.Fatal(err)
	}
	before.Stop()

	after.Start()
	root = after.Client(client.Options{Token: token["root"], Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	if _, err := root.Import(ctx, &archive); err != nil {
		t.Fatal(err)
	}
	described, err := root.Module(ctx, up.Digest)
	if m := described.GetModule(); err != nil || m.GetSignedBy() == "" || m.GetSignatureFault() != "" {
		t.Errorf("the module is signed by %q, fault %q, %v", m.GetSignedBy(), m.GetSignatureFault(), err)
	}
	bind(t, root, "token:ann", "invoker", "viewer")
	ann, bo := call(after.API(), token["ann"], ""), call(after.API(), token["bo"], "")
	if who, err := ann.made("d1"); err != nil || who != "token:ann" {
		t.Errorf("the event is of %q, %v", who, err)
	}
	if _, _, err := ann.take("d1"); err != nil {
		t.Errorf("who had the deed: %v", err)
	}
	if _, _, err := bo.take("d1"); err == nil || !strings.Contains(err.Error(), "permission_denied") {
		t.Errorf("who has no role: %v", err)
	}
	bind(t, root, "token:bo", "invoker")
	if _, _, err := bo.take("d1"); code(err) != "not_yours" {
		t.Errorf("another's deed: %v", err)
	}
}
