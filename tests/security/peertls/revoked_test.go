package peertls

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/testkit"
)

// An operator revokes a certificate with the command line only: it overwrites
// the node's revocation list, and the node reloads it without a signal.
func TestCertificateIsRevokedByCommandLine(t *testing.T) {
	own := newAuthority(t)
	crl := filepath.Join(t.TempDir(), "peers.crl")
	n := testkit.NewNode(t, testkit.NodeOptions{Flags: append(newFiles(own, "n1").flags("require"), "--peer-crl-file", crl)})
	revoke := func(certificates ...string) {
		t.Helper()
		if text, code := n.Run(append([]string{"cert", "revoke", "--dir", filepath.Dir(own.file), "--out", crl}, certificates...)...); code != 0 {
			t.Fatalf("%d: %s", code, text)
		}
	}
	cert, key := certs.NodeFiles(t.TempDir(), "n2")
	if err := own.Issue(cert, key, request("n2")); err != nil {
		t.Fatal(err)
	}
	shows, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	revoke()
	n.Start()
	config := as(shows, own)
	config.ServerName = "n1.example"
	if status, err := callAs(t, config, n.PeerAPI(), probe, "n2", ""); err != nil {
		t.Fatalf("a certificate that is not revoked is answered with %d, %v", status, err)
	}
	revoke(cert)
	n.Await("it is refused", func() bool {
		_, err := callAs(t, config, n.PeerAPI(), probe, "n2", "")
		return err != nil
	})
}

// A node rejects revoked certificates as soon as its list contains them, and
// closes their open connections. It does not start with an expired list.
func TestRevokedCertificatesAreRejected(t *testing.T) {
	own := newAuthority(t)
	files := newFiles(own, "n1")
	crl := filepath.Join(t.TempDir(), "peers.crl")
	shows := own.pair(request("n2"))
	leaf, err := x509.ParseCertificate(shows.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	put := func(text []byte, err error) {
		if err == nil {
			err = os.WriteFile(crl+".new", text, 0o600)
		}
		if err == nil {
			err = os.Rename(crl+".new", crl)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	put(own.RevocationList(1, from, until))
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: append(files.flags("require"), "--peer-crl-file", crl)})
	config := as(shows, own)
	config.ServerName = "n1.example"
	f := forger{t: t, config: config, node: "n2", own: own, starts: map[string]uint64{"n2": 1}}
	f.starts = f.members(n)
	f.starts["n2"] = uint64(time.Now().UnixMilli())
	open := f.hangs(n)
	put(own.RevocationList(2, from, until, leaf.SerialNumber))
	n.Signal(syscall.SIGHUP)
	n.Await("its link ends", func() bool { return len(open) > 0 })
	if status, err := callAs(t, config, n.PeerAPI(), probe, "n2", ""); err == nil {
		t.Errorf("a revoked certificate is answered with %d", status)
	}
	put(own.RevocationList(3, from.Add(-2*time.Hour), from))
	n.Signal(syscall.SIGHUP)
	n.Await("the node says why it does not take a list", func() bool {
		return strings.Contains(n.Log(), "the previous ones stay in use") && strings.Contains(n.Log(), "list 1 expired at")
	})
	if _, err := callAs(t, config, n.PeerAPI(), probe, "n2", ""); err == nil {
		t.Error("a revoked certificate is taken again")
	}
	n.Stop()
	if err := n.TryStart(); err == nil {
		t.Error("the node starts with a list that has ended")
	}
	if !strings.Contains(n.Log(), "replace it with a newer one") {
		t.Errorf("the node does not say why it ends: %s", n.Log())
	}
}
