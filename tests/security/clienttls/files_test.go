// Package clienttls calls real nodes with and without TLS, with certificates
// that are good, bad and replaced meanwhile. It has tests only.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// authority issues certificates of a test.
type authority struct {
	*certs.Authority
	t    testing.TB
	file string
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	a, err := certs.CreateAuthority(dir, "hostd")
	if err != nil {
		t.Fatal(err)
	}
	file, _ := certs.AuthorityFiles(dir)
	return authority{a, t, file}
}

// client issues a certificate to a client.
func (a authority) client(name string) *tls.Certificate {
	a.t.Helper()
	return a.issue(certs.Request{Name: name})
}

// issue issues a certificate.
func (a authority) issue(r certs.Request) *tls.Certificate {
	a.t.Helper()
	cert, key := certs.ClientFiles(a.t.TempDir(), r.Name)
	if err := a.Issue(cert, key, r); err != nil {
		a.t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &pair
}

// nodeFiles are the files of one node.
type nodeFiles struct {
	certs.Files
	t testing.TB
}

// newFiles makes those of a node of an authority, which lets the clients of
// some in.
func newFiles(t testing.TB, of authority, clients ...authority) nodeFiles {
	dir := t.TempDir()
	f := nodeFiles{certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "ca.crt")}, t}
	f.renew(of, "n1", "127.0.0.1")
	f.believe(clients...)
	return f
}

// renew puts another pair in place.
func (f nodeFiles) renew(of authority, node string, hosts ...string) {
	f.t.Helper()
	cert, key := certs.NodeFiles(f.t.TempDir(), "new")
	if err := of.Issue(cert, key, certs.Request{Name: node, Cluster: "hostd", Hosts: hosts}); err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(os.Rename(cert, f.Cert), os.Rename(key, f.Key)); err != nil {
		f.t.Fatal(err)
	}
}

// believe puts another bundle of authorities in place.
func (f nodeFiles) believe(clients ...authority) {
	f.t.Helper()
	var bundle []byte
	for _, a := range clients {
		text, err := os.ReadFile(a.file)
		if err != nil {
			f.t.Fatal(err)
		}
		bundle = append(bundle, text...)
	}
	if err := errors.Join(os.WriteFile(f.ClientCA+".new", bundle, 0o600), os.Rename(f.ClientCA+".new", f.ClientCA)); err != nil {
		f.t.Fatal(err)
	}
}

// flags are those of a node with these files.
func (f nodeFiles) flags(mode, auth string) []string {
	return []string{"--tls-mode", mode, "--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-client-ca-file", f.ClientCA, "--tls-client-auth", auth}
}

// trust is the configuration of a client that believes authorities and shows
// what shows holds, if anything.
func trust(shows *atomic.Pointer[tls.Certificate], nodes ...authority) *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	for _, a := range nodes {
		config.RootCAs.AddCert(a.Cert)
	}
	if shows != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shows.Load(), nil }
	}
	return config
}

// holding is a holder of a certificate.
func holding(c *tls.Certificate) *atomic.Pointer[tls.Certificate] {
	p := &atomic.Pointer[tls.Certificate]{}
	p.Store(c)
	return p
}

// hostOf is the host of an address.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// contains reports an error with a text.
func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
