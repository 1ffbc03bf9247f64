package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/certs"
)

func parse(t testing.TB, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		t.Fatal("not one block of PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNodeCertificateIsRecognized checks that every certificate that nodes accept
// from a node counts as one, and no certificate of a client or another system.
func TestNodeCertificateIsRecognized(t *testing.T) {
	for name, want := range map[string]bool{"n1.node.test": true, "n1.node.other": false, "n1.test": false, ".node.test": false, "a b.node.test": false} {
		if c := (&x509.Certificate{DNSNames: []string{"client", name}}); certs.OfNode(c, "test") != want || certs.OfNode(c, "") {
			t.Errorf("a certificate for %s is a node's: %v", name, !want)
		}
	}
}

func TestIssuedCertificates(t *testing.T) {
	a := newCA(t)
	cert, _ := a.issue(certs.Request{Name: "n1", Cluster: "test", Hosts: []string{"node.example", "10.0.0.1", "::1"}})
	c := parse(t, cert)
	for _, host := range []string{"node.example", "10.0.0.1", "[::1]"} {
		if err := c.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if len(c.URIs) != 1 || c.URIs[0].String() != "spiffe://test/hostd/node/n1" || c.Subject.CommonName != "n1" {
		t.Errorf("the node is %v, %s", c.URIs, c.Subject)
	}
	if !certs.OfNode(c, "") {
		t.Error("the certificate of a node does not pass for one")
	}
	if key, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("the key is a %T", c.PublicKey)
	}
	year := time.Now().Add(certs.LeafLife)
	if d := c.NotAfter.Sub(year).Abs(); d > time.Hour || c.IsCA {
		t.Errorf("it is good until %s, of an authority: %t", c.NotAfter, c.IsCA)
	}
	if d := a.Cert.NotAfter.Sub(time.Now().Add(certs.AuthorityLife)).Abs(); d > time.Hour {
		t.Errorf("the authority is good until %s", a.Cert.NotAfter)
	}
	cert, _ = a.issue(certs.Request{Name: "bob"})
	if c = parse(t, cert); len(c.URIs) > 0 || certs.OfNode(c, "test") || len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("a client's: %v, %v", c.URIs, c.ExtKeyUsage)
	}
}

// Only the owner can read keys, and no file is overwritten.
func TestCertificateFilesArePrivate(t *testing.T) {
	a := newCA(t)
	if _, err := certs.CreateAuthority(a.dir, "test"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second authority in a directory: %v", err)
	}
	cert, key := certs.ClientFiles(a.dir, "bob")
	if err := a.Issue(cert, key, certs.Request{Name: "bob"}); err != nil {
		t.Fatal(err)
	}
	before := contents(t, key)
	if err := a.Issue(cert, key, certs.Request{Name: "bob"}); !errors.Is(err, os.ErrExist) || string(contents(t, key)) != string(before) {
		t.Errorf("the same certificate again: %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := a.Issue(cert, key, certs.Request{Name: "bob"}); !errors.Is(err, os.ErrExist) {
		t.Errorf("beside a certificate: %v", err)
	}
	if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key without its certificate: %v", err)
	}
	for _, file := range []string{certs.AuthorityKey, "client.ann.key"} {
		if file == "client.ann.key" {
			cert, key := certs.ClientFiles(a.dir, "ann")
			if err := a.Issue(cert, key, certs.Request{Name: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(filepath.Join(a.dir, file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}

func TestInvalidCertificateRequests(t *testing.T) {
	a := newCA(t)
	for _, q := range []certs.Request{
		{}, {Name: "../x"}, {Name: "."}, {Name: "A"}, {Name: "a/b"}, {Name: strings.Repeat("a", 65)}, {Name: "a", Hosts: []string{"h"}},
		{Name: "n", Cluster: "c"}, {Name: "n", Cluster: "C", Hosts: []string{"h"}}, {Name: "n", Cluster: "c", Hosts: []string{""}},
		{Name: "n", Cluster: "a..c", Hosts: []string{"h"}}, {Name: "n", Cluster: "c.", Hosts: []string{"h"}}, // x509 could not parse the result
		{Name: "n", Cluster: "c", Hosts: []string{"h:1"}}, {Name: "n", Cluster: "c", Hosts: make([]string, 65)},
	} {
		cert, key := certs.NodeFiles(t.TempDir(), "x")
		if err := a.Issue(cert, key, q); err == nil {
			t.Errorf("%+v was issued", q)
		}
	}
	if _, err := certs.OpenAuthority(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no authority: %v", err)
	}
	dir := t.TempDir()
	cert, key := a.issue(node())
	if err := errors.Join(os.WriteFile(filepath.Join(dir, certs.AuthorityCert), cert, 0o600), os.WriteFile(filepath.Join(dir, certs.AuthorityKey), key, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.OpenAuthority(dir); err == nil {
		t.Error("a node is an authority")
	}
}
