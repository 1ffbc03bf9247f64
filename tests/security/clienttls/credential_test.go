package clienttls

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// A node that authenticates clients by certificate accepts them, and its audit
// log names the client that made a change. It does not accept the certificate
// of a node as a client certificate, although the same authority issued it.
func TestClientCertificateAuthenticates(t *testing.T) {
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
		"no certificate": {trust(nil, of), "requires a credential"},
		"a node's":       {trust(holding(&pair), of), "belongs to a node"},
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

// TestConnectionQuotaPerCaller checks that a caller identified by a certificate
// may have as many connections as its role permits, and may open another
// connection when one of them has ended. A caller with a different certificate
// has a separate quota.
func TestConnectionQuotaPerCaller(t *testing.T) {
	of := newAuthority(t)
	f := newFiles(t, of, of)
	root, bob := trust(holding(of.client("root")), of), trust(holding(of.client("bob")), of)
	flags := append(f.flags("require", "optional"), "--auth", "required", "--auth-cert-name", "cn", "--admin", "full")
	n := testkit.NewNode(t, testkit.NodeOptions{Listen: "127.0.0.1:0", TLS: root, Flags: flags})
	n.Start()
	admin := n.Client(client.Options{})
	if _, err := admin.PutRoleBinding(t.Context(), "certificate:root", "admin"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutRoleWithQuotas(t.Context(), admin, "two", &clusterv1.RoleQuotas{Connections: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.PutRoleBinding(t.Context(), "certificate:bob", "viewer", "two"); err != nil {
		t.Fatal(err)
	}
	caller := func(config *tls.Config) (*http.Client, func() int) {
		transport := &http.Transport{TLSClientConfig: config.Clone()} // one persistent connection
		t.Cleanup(transport.CloseIdleConnections)
		c := &http.Client{Transport: transport}
		return c, func() int {
			res, err := c.Post(n.API()+clusterv1connect.ClusterServiceGetClusterProcedure, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode == http.StatusTooManyRequests && !strings.Contains(string(text), "exceeded its quota connections=2") {
				t.Errorf("%s", text)
			}
			return res.StatusCode
		}
	}
	first, askFirst := caller(bob)
	_, askSecond := caller(bob)
	_, askThird := caller(bob)
	for range 3 { // several calls use one connection
		if a, b := askFirst(), askSecond(); a != http.StatusOK || b != http.StatusOK {
			t.Fatalf("two connections of two: %d, %d", a, b)
		}
	}
	if status := askThird(); status != http.StatusTooManyRequests {
		t.Errorf("the third of two connections: %d", status)
	}
	if _, ask := caller(root); ask() != http.StatusOK {
		t.Error("another caller has no connection")
	}
	first.CloseIdleConnections()
	n.Until("one has ended, and another one is taken", func() error {
		if status := askThird(); status != http.StatusOK {
			return fmt.Errorf("%d", status)
		}
		return nil
	})
}
