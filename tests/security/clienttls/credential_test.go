package clienttls

import (
	"bytes"
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// A node that goes by the names of certificates lets their bearers in, and
// writes who made a change. A node's own certificate is no client's, though the
// same authority issued it.
func TestCertificatesAreCredentials(t *testing.T) {
	of := newAuthority(t)
	f := newFiles(t, of, of)
	bob := trust(holding(of.client("bob")), of)
	account := filepath.Join(t.TempDir(), "audit.log")
	flags := append(f.flags("require", "optional"), "--auth", "required", "--auth-cert-name", "cn", "--audit-file", account)
	n := testkit.NewNode(t, testkit.NodeOptions{Listen: "127.0.0.1:0", TLS: bob, Flags: flags})
	n.Start()
	n.Push("counter")
	if _, err := n.Client(client.Options{}).Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config *tls.Config
		fault  string
	}{
		"no certificate": {trust(nil, of), "with a credential only"},
		"a node's":       {trust(holding(&pair), of), "is of a node"},
	} {
		caller, err := client.New([]string{n.Address()}, client.Options{TLS: c.config})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		if _, err := caller.Cluster(ctx); client.CodeOf(err) != connect.CodeUnauthenticated || !contains(err, c.fault) {
			t.Errorf("%s: %v, wanted %q", name, err, c.fault)
		}
		cancel()
		caller.Close()
	}
	n.Stop()
	text, err := os.ReadFile(account)
	if err != nil || !bytes.Contains(text, []byte(`"kind":"certificate","name":"bob"`)) {
		t.Errorf("%v: %s", err, text)
	}
}
