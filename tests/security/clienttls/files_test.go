// Package clienttls calls real nodes with and without TLS, with certificates
// that are valid, invalid, or replaced during the test. It contains only tests.
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

// authority is a certificate authority of a test.
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

// nodeFiles are the TLS files of one node.
type nodeFiles struct {
	certs.Files
	t testing.TB
}

// newFiles creates the files of a node with a certificate of an authority. The
// node accepts client certificates of the authorities in clients.
func newFiles(t testing.TB, of authority, clients ...authority) nodeFiles {
	dir := t.TempDir()
	f := nodeFiles{certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "ca.crt")}, t}
	f.renew(of, "n1", "127.0.0.1")
	f.believe(clients...)
	return f
}

// renew replaces the key pair.
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

// believe replaces the bundle of trusted authorities.
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

// flags returns the flags of a node with these files.
func (f nodeFiles) flags(mode, auth string) []string {
	return []string{"--tls-mode", mode, "--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-client-ca-file", f.ClientCA, "--tls-client-auth", auth}
}

// trust returns the configuration of a client that trusts the authorities of
// the nodes, and presents the certificate in shows, if there is one.
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

// holding returns a pointer that holds a certificate.
func holding(c *tls.Certificate) *atomic.Pointer[tls.Certificate] {
	p := &atomic.Pointer[tls.Certificate]{}
	p.Store(c)
	return p
}

// hostOf returns the host of an address.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// contains reports whether an error is not nil and contains a text.
func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
