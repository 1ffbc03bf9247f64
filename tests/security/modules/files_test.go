// Package modules tests which modules nodes accept and run, depending on their
// signatures. It runs nodes as processes, and creates keys and signatures with
// the command line.
package modules

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// files are keys, modules and signatures.
type files struct {
	t     *testing.T
	dir   string
	node  *testkit.Node // the node's program makes the keys and signatures
	trust string        // trust file of the nodes
}

func newFiles(t *testing.T, node *testkit.Node) *files {
	t.Helper()
	f := &files{t: t, dir: t.TempDir(), node: node}
	f.trust = f.path("trust")
	f.write(f.trust, "# none\n")
	return f
}

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

func (f *files) write(path, text string) {
	f.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// run runs a command that must succeed.
func (f *files) run(args ...string) string {
	f.t.Helper()
	out, code := f.node.Run(args...)
	if code != 0 {
		f.t.Fatalf("hostd %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// key creates a key, and returns its line for the trust file.
func (f *files) key(name string) (line string) {
	f.t.Helper()
	line = f.run("module", "keygen", "--out", f.path(name+".key"))
	if info, err := os.Stat(f.path(name + ".key")); err != nil || info.Mode().Perm() != 0o600 {
		f.t.Fatalf("the key's file: %v, %v", info, err)
	}
	return line
}

// module writes a module with one type, and returns its path.
func (f *files) module(entityType string) string {
	f.t.Helper()
	f.write(f.path(entityType+".wasm"), string(guest.Module{Good: entityType}.Build()))
	return f.path(entityType + ".wasm")
}

// sign signs a module with a key, and returns the path of the signature.
func (f *files) sign(module, key string) string {
	f.t.Helper()
	out := strings.TrimSuffix(module, ".wasm") + "." + key + ".sig"
	f.run("module", "sign", module, "--key", f.path(key+".key"), "--out", out)
	return out
}

// push uploads a module to one node with the command line and returns its
// output. If reason is empty the command must succeed; otherwise it must be
// rejected with that reason.
func (f *files) push(n *testkit.Node, module, signature string, more ...string) string {
	f.t.Helper()
	args := append([]string{"module", "push", module, "--addr", n.Address()}, more...)
	if signature != "" {
		args = append(args, "--signature", signature)
	}
	return f.run(args...)
}

// uploaded uploads a module and returns its digest, or the reason of its
// rejection.
func uploaded(t *testing.T, n *testkit.Node, module, signature string, activate bool) (digest, reason string) {
	t.Helper()
	wasm, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	up, err := client.UploadSigned(ctx, n.Client(client.Options{}), wasm, read(t, signature), activate)
	return up.Digest, reasonOf(t, err)
}

// ready returns the response of /readyz of a node that is ready.
func ready(t *testing.T, n *testkit.Node) string {
	t.Helper()
	res, err := http.Get(n.API() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s is not ready: %s, %v\n%s", n.ID(), res.Status, err, text)
	}
	return string(text)
}
