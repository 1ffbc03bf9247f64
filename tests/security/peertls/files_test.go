// Package peertls tests TLS between real nodes, and calls from other programs
// with certificates that are valid, invalid, or replaced during the test. It
// contains only tests.
package peertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
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

// request returns the certificate request of a node. The certificate names the
// node, not its address.
func request(node string) certs.Request {
	return certs.Request{Name: node, Cluster: "hostd", Hosts: []string{node + ".example"}}
}

// pair issues a certificate.
func (a authority) pair(q certs.Request) tls.Certificate {
	a.t.Helper()
	cert, key := certs.NodeFiles(a.t.TempDir(), "x")
	if err := a.Issue(cert, key, q); err != nil {
		a.t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// nodeFiles are the TLS files of one node.
type nodeFiles struct {
	certs.Files
	t    testing.TB
	node string
}

// newFiles creates the files of a node with a certificate of an authority,
// which the node also trusts.
func newFiles(of authority, node string) nodeFiles {
	dir := of.t.TempDir()
	f := nodeFiles{certs.Files{Cert: filepath.Join(dir, "peer.crt"), Key: filepath.Join(dir, "peer.key"), ClientCA: filepath.Join(dir, "ca.crt")}, of.t, node}
	f.renew(of)
	f.believe(of)
	return f
}

// renew replaces the key pair.
func (f nodeFiles) renew(of authority) {
	f.t.Helper()
	cert, key := certs.NodeFiles(f.t.TempDir(), "new")
	if err := of.Issue(cert, key, request(f.node)); err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(os.Rename(cert, f.Cert), os.Rename(key, f.Key)); err != nil {
		f.t.Fatal(err)
	}
}

// believe replaces the bundle of trusted authorities.
func (f nodeFiles) believe(all ...authority) {
	f.t.Helper()
	var bundle []byte
	for _, a := range all {
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

// serial returns the serial number of the certificate in the files.
func (f nodeFiles) serial() string {
	f.t.Helper()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		f.t.Fatal(err)
	}
	return pair.Leaf.SerialNumber.String()
}

// flags returns the flags of a node with these files.
func (f nodeFiles) flags(mode string) []string {
	return []string{"--peer-tls-mode", mode, "--peer-cert-file", f.Cert, "--peer-key-file", f.Key, "--peer-ca-file", f.ClientCA}
}

// as returns the TLS configuration of a caller that presents a certificate and
// trusts node certificates from an authority.
func as(shows tls.Certificate, nodes authority) *tls.Config {
	c := &tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{certs.PeerProtocol}}
	c.RootCAs.AddCert(nodes.Cert)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shows, nil }
	return c
}

// over is a network whose connections use a TLS configuration, or no TLS if the
// configuration is nil.
type over struct {
	network.TCP
	config *tls.Config
}

func (o over) Dial(ctx context.Context, address string) (net.Conn, error) {
	if o.config == nil {
		return o.TCP.Dial(ctx, address)
	}
	return (&tls.Dialer{Config: o.config}).DialContext(ctx, "tcp", address)
}

// callAs makes a call to a node as another node of the cluster, and returns the
// status. The status is 415 if the call reached the procedure, because no
// procedure accepts the content type of the body.
func callAs(t testing.TB, config *tls.Config, url, path, node, cluster string) (status int, err error) {
	t.Helper()
	transport := network.NewHTTPTransport(over{config: config}, network.HTTPOptions{DialTimeout: testkit.Patience, Idle: testkit.Patience})
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader("?"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "text/none", "Hostd-Format": "1", "Hostd-Levels": fmt.Sprintf("%d-%d", sharding.SupportedVersions.Min, sharding.SupportedVersions.Max), "Hostd-Node": node, "Hostd-Incarnation": "1", "Hostd-Cluster": cluster} {
		r.Header.Set(name, value)
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}
