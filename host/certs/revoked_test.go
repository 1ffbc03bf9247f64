package certs_test

import (
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/certs"
)

// list returns a revocation list of the authority that is valid for an hour.
func (c ca) list(number int64, serials ...*big.Int) []byte {
	c.t.Helper()
	return c.listUntil(number, time.Now().Add(time.Hour), serials...)
}

func (c ca) listUntil(number int64, until time.Time, serials ...*big.Int) []byte {
	c.t.Helper()
	text, err := c.RevocationList(number, until.Add(-2*time.Hour), until, serials...)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// serial returns the serial number of the first certificate in a PEM text.
func serial(t testing.TB, cert []byte) *big.Int {
	t.Helper()
	block, _ := pem.Decode(cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber
}

// TestRevokedCertificateIsRejected: a revoked certificate is rejected on either side,
// and its connections are closed.
func TestRevokedCertificateIsRejected(t *testing.T) {
	own, same := newCA(t), newCA(t)
	good, bad := own.identity(member("n1")), own.identity(member("n2"))
	revoked := serial(t, bad.cert)
	for _, encoding := range []string{"PEM", "DER"} {
		t.Run(encoding, func(t *testing.T) {
			o := peerOptions(t, good)
			o.Files.CRL = filepath.Join(filepath.Dir(o.Files.Cert), "crl")
			put(t, o.Files.CRL, own.list(1))
			p := openPeers(t, o)
			other := openPeers(t, peerOptions(t, bad))
			l := listen(t)
			accepted := make(chan net.Conn, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					conn, err = p.Accept(conn)
				}
				if err == nil {
					accepted <- conn
				}
				close(accepted)
			}()
			open, err := other.Dial(t.Context(), l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			if <-accepted == nil {
				t.Fatal("a good certificate is refused")
			}
			text := own.list(2, revoked)
			if encoding == "DER" {
				block, _ := pem.Decode(text)
				text = block.Bytes
			}
			put(t, o.Files.CRL, text)
			if err := p.Reload(); err != nil {
				t.Fatal(err)
			}
			open.SetReadDeadline(time.Now().Add(patience))
			if n, err := open.Read(make([]byte, 1)); n != 0 || err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("its connection lives on: %d, %v", n, err)
			}
			if err := speak(t, other.Dial, echoes(t, listen(t), p.Accept)); err == nil {
				t.Error("it is accepted")
			}
			if err := speak(t, p.Dial, echoes(t, listen(t), other.Accept)); err == nil || !strings.Contains(err.Error(), "revoked") {
				t.Errorf("it is dialed: %v", err)
			}
			third := openPeers(t, peerOptions(t, own.identity(member("n3"))))
			if err := speak(t, third.Dial, echoes(t, listen(t), p.Accept)); err != nil {
				t.Errorf("another one is refused: %v", err)
			}
		})
	}
	// A serial number revoked by one authority doesn't affect certificates
	// of another authority.
	both := own.identity(member("n1"), same)
	o := peerOptions(t, both)
	o.Files.CRL = filepath.Join(filepath.Dir(o.Files.Cert), "crl")
	put(t, o.Files.CRL, append(own.list(1), same.list(1, revoked)...))
	if err := speak(t, openPeers(t, peerOptions(t, bad)).Dial, echoes(t, listen(t), openPeers(t, o).Accept)); err != nil {
		t.Errorf("a certificate is revoked by another authority: %v", err)
	}
}

// TestInvalidRevocationListIsNotUsed: a node does not start with an invalid
// list, and keeps the previous list if an invalid list replaces it later.
func TestInvalidRevocationListIsNotUsed(t *testing.T) {
	own, strange := newCA(t), newCA(t)
	bad := own.identity(member("n2"))
	o := peerOptions(t, own.identity(member("n1")))
	o.Files.CRL = filepath.Join(filepath.Dir(o.Files.Cert), "crl")
	put(t, o.Files.CRL, own.list(1, serial(t, bad.cert)))
	var l logs
	o.Logger = l.logger()
	p := openPeers(t, o)
	address := echoes(t, listen(t), p.Accept)
	for fault, text := range map[string][]byte{
		"is not signed by an authority of peer-ca-file": strange.list(2),
		"expired at":              own.listUntil(2, time.Now().Add(-time.Minute)),
		"valid only from":         own.listUntil(2, time.Now().Add(5*time.Hour)),
		"not a revocation list":   []byte("?"),
		"holds a \"CERTIFICATE\"": own.pem(),
	} {
		put(t, o.Files.CRL, text)
		if err := p.Reload(); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", fault, err)
		}
		if l.count("the previous ones stay in use") == 0 {
			t.Errorf("%s: the log is silent", fault)
		}
		if err := speak(t, openPeers(t, peerOptions(t, bad)).Dial, address); err == nil {
			t.Errorf("%s: what was revoked is taken again", fault)
		}
		at := o
		at.Logger = nil
		if started, err := certs.OpenPeers(at); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: a node starts: %v, %v", fault, started, err)
		}
	}
	put(t, o.Files.CRL, own.list(3))
	if err := p.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := speak(t, openPeers(t, peerOptions(t, bad)).Dial, address); err != nil {
		t.Errorf("what is revoked no more is refused: %v", err)
	}
}

// TestExpiredRevocationListStaysInForce: a list that ends while it is in use
// stays in force, and other files can still be reloaded.
func TestExpiredRevocationListStaysInForce(t *testing.T) {
	own := newCA(t)
	bad := own.identity(member("n2"))
	o := peerOptions(t, own.identity(member("n1")))
	o.Files.CRL = filepath.Join(filepath.Dir(o.Files.Cert), "crl")
	put(t, o.Files.CRL, own.list(1, serial(t, bad.cert)))
	var late atomic.Bool
	o.Now = func() time.Time {
		if late.Load() {
			return time.Now().Add(2 * time.Hour)
		}
		return time.Now()
	}
	p := openPeers(t, o)
	late.Store(true)
	cert, key := own.issue(member("n1"))
	putPair(t, o.Files, cert, key)
	if err := p.Reload(); err != nil {
		t.Errorf("another pair is not read: %v", err)
	}
	if err := speak(t, openPeers(t, peerOptions(t, bad)).Dial, echoes(t, listen(t), p.Accept)); err == nil {
		t.Error("what was revoked is taken again")
	}
}
