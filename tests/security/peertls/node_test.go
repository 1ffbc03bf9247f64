package peertls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

const probe = "/hostd.peer.v1.PeerService/Probe"

// startNode starts a node with TLS between nodes.
func startNode(t *testing.T, mode string, f nodeFiles) *testkit.Node {
	t.Helper()
	return testkit.StartNode(t, testkit.NodeOptions{Flags: f.flags(mode)})
}

// asNode returns the configuration of a caller that node n1 accepts as another
// node.
func asNode(t *testing.T, q certs.Request, shows, nodes authority) *tls.Config {
	t.Helper()
	c := as(shows.pair(q), nodes)
	c.ServerName = "n1.example"
	return c
}

// answers waits until a node answers a call from another node with the given
// status. It retries, because a node that has stalled for a moment closes new
// connections.
func answers(t *testing.T, n *testkit.Node, config *tls.Config, url, path string, want int) {
	t.Helper()
	n.Until(path+" is answered", func() error {
		status, err := callAs(t, config, url, path, "n2", "")
		if err == nil && status != want {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}

// metrics returns the lines of a node's metrics that begin with a text.
func metrics(t *testing.T, n *testkit.Node, begin string) (lines []string) {
	t.Helper()
	var text []byte
	n.Until("metrics are told", func() error {
		res, err := http.Get(n.API() + "/metrics")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if text, err = io.ReadAll(res.Body); err == nil && res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		return err
	})
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, begin) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// counted returns the metric that counts connections accepted in the given way.
func counted(t *testing.T, n *testkit.Node, how string) string {
	t.Helper()
	name := `hostd_peer_accepted_total{how="` + how + `"} `
	lines := metrics(t, n, name)
	if len(lines) != 1 {
		t.Fatalf("%s has %q", name, lines)
	}
	return strings.TrimPrefix(lines[0], name)
}

// ended waits until the other side closes a connection.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection is not closed: %d bytes, %v", n, err)
	}
}

// A node that requires TLS rejects, on both listeners, callers without a
// certificate of a node.
func TestRequiredTLSRejectsPlainCallers(t *testing.T) {
	own, strange := newAuthority(t), newAuthority(t)
	n := startNode(t, "require", newFiles(own, "n1"))
	good := asNode(t, request("n2"), own, own)
	answers(t, n, good, n.PeerAPI(), probe, http.StatusUnsupportedMediaType)
	answers(t, n, good, n.PeerAPI(), "/livez", http.StatusNotFound)
	refused := counted(t, n, "refused")
	past, foreign := request("n2"), request("n2")
	past.From, past.Until = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	foreign.Cluster = "other"
	with := func(change func(*tls.Config)) *tls.Config { c := good.Clone(); change(c); return c }
	for name, config := range map[string]*tls.Config{
		"without TLS":           nil,
		"another authority":     asNode(t, request("n2"), strange, own),
		"ended":                 asNode(t, past, own, own),
		"of another cluster":    asNode(t, foreign, own, own),
		"of a client":           asNode(t, certs.Request{Name: "ann"}, own, own),
		"without a certificate": with(func(c *tls.Config) { c.GetClientCertificate = nil }),
		"TLS 1.2":               with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
		"for HTTP":              with(func(c *tls.Config) { c.NextProtos = []string{"h2"} }),
	} {
		before := refused
		n.Await(name+" is refused and counted", func() bool {
			if status, err := callAs(t, config, n.PeerAPI(), probe, "n2", ""); err == nil {
				t.Fatalf("%s: it is answered with %d", name, status)
			}
			refused = counted(t, n, "refused")
			return refused != before
		})
	}
	n.Until("who does not believe the node does not speak to it", func() error {
		_, err := callAs(t, asNode(t, request("n2"), own, strange), n.PeerAPI(), probe, "n2", "")
		if err == nil {
			t.Fatal("who does not believe the node speaks to it")
		}
		if strings.Contains(err.Error(), "unknown authority") {
			return nil
		}
		return err
	})
	gossip, err := network.DialGossip(t.Context(), network.TCP{}, strings.TrimPrefix(n.PeerAPI(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer gossip.Close()
	ended(t, gossip)
	if gossip, err = network.DialGossip(t.Context(), network.TCP{}, n.Address()); err != nil {
		t.Fatal(err)
	}
	defer gossip.Close()
	ended(t, gossip)
	answers(t, n, nil, n.API(), probe, http.StatusNotFound)
	if plain := counted(t, n, "plain"); plain != "0" {
		t.Errorf("%s connections without TLS were taken", plain)
	}
	for _, use := range []string{"peer", "peer-ca"} {
		if lines := metrics(t, n, `hostd_tls_cert_not_after_seconds{use="`+use+`"}`); len(lines) != 1 {
			t.Errorf("the end of %s is not told: %q", use, lines)
		}
	}
	n.Await("it is logged that strangers came", func() bool { return strings.Contains(n.Log(), "rejected a connection") })
	if strings.Contains(n.Log(), "BEGIN") {
		t.Error("a key or certificate is logged")
	}
}

// A node that allows TLS accepts connections with and without TLS on its port,
// but no invalid certificate.
func TestAllowedTLSAcceptsBoth(t *testing.T) {
	own := newAuthority(t)
	n := startNode(t, "allow", newFiles(own, "n1"))
	for _, config := range []*tls.Config{nil, asNode(t, request("n2"), own, own)} {
		answers(t, n, config, n.PeerAPI(), probe, http.StatusUnsupportedMediaType)
	}
	stranger := asNode(t, request("n2"), newAuthority(t), own)
	n.Await("a certificate of nobody's is refused and counted", func() bool {
		if status, err := callAs(t, stranger, n.PeerAPI(), probe, "n2", ""); err == nil {
			t.Fatalf("a certificate of nobody's is answered with %d", status)
		}
		return counted(t, n, "refused") != "0"
	})
	for _, how := range []string{"plain", "tls"} {
		n.Await(how+" is counted", func() bool { return counted(t, n, how) != "0" })
	}
}

// A node reads its files at its start and on SIGHUP. If the files are invalid,
// the node reports the reason. A start then fails, and a running node continues
// with the previous files.
func TestCertificateFilesAreReloaded(t *testing.T) {
	own := newAuthority(t)
	f := newFiles(own, "n1")
	n := startNode(t, "require", f)
	good := asNode(t, request("n2"), own, own)
	const failures = `hostd_tls_reload_failures_total{use="peer"} `
	if lines := metrics(t, n, failures); len(lines) != 1 || lines[0] != failures+"0" {
		t.Fatalf("at the start: %q", lines)
	}
	before := shown(t, n, good)
	if err := os.WriteFile(f.Key, []byte("not a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Signal(syscall.SIGHUP)
	n.Await("the failure is counted", func() bool { return metrics(t, n, failures)[0] != failures+"0" })
	if now := shown(t, n, good); now != before {
		t.Error("another certificate is shown")
	}
	f.renew(own)
	n.Signal(syscall.SIGHUP)
	n.Await("the new pair is shown", func() bool { return shown(t, n, good) == f.serial() })
	n.Stop()
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	if err := n.TryStart(); err == nil || !strings.Contains(n.Log(), "read certificates") {
		t.Errorf("without a key: %v\n%s", err, n.Log())
	}
	n.SetFlags(newFiles(own, "n2").flags("require")...)
	if err := n.TryStart(); err == nil || !strings.Contains(n.Log(), "to node n2, but this is node n1") {
		t.Errorf("with the certificate of another node: %v\n%s", err, n.Log())
	}
}

// shown returns the serial number of the certificate that a node presents to
// other nodes.
func shown(t testing.TB, n *testkit.Node, config *tls.Config) (serial string) {
	t.Helper()
	n.Until("a certificate is shown", func() error {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(n.PeerAPI(), "http://"), config)
		if err != nil {
			return err
		}
		defer conn.Close()
		serial = conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
		return nil
	})
	return serial
}
