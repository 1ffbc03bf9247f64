package certs_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/certs"
)

// patience is how long the test waits for the other side of a connection.
const patience = time.Minute

// identity is a node's certificate and the authorities that it trusts.
type identity struct {
	cert, key []byte
	believes  []byte
}

func (c ca) identity(q certs.Request, others ...ca) identity {
	c.t.Helper()
	cert, key := c.issue(q)
	i := identity{cert: cert, key: key}
	for _, o := range append([]ca{c}, others...) {
		i.believes = append(i.believes, o.pem()...)
	}
	return i
}

// member returns the request for a node. Its certificate contains none of the
// host names that the tests dial.
func member(name string) certs.Request {
	return certs.Request{Name: name, Cluster: "test", Hosts: []string{"elsewhere.example"}}
}

// elsewhere issues certificates that name nodes by DNS names, as other tools
// do.
type elsewhere struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newElsewhere(t testing.TB) elsewhere {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	e := elsewhere{t: t, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "elsewhere"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	return e
}

func (e elsewhere) identity(names string, uses ...x509.ExtKeyUsage) (i identity) {
	e.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "n1"}, NotBefore: e.cert.NotBefore, NotAfter: e.cert.NotAfter,
		ExtKeyUsage: uses, DNSNames: strings.Fields(names), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	text := func(kind string, der []byte, err error) []byte {
		if err != nil {
			e.t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, e.cert, key.Public(), e.key)
	i.cert = text("CERTIFICATE", der, err)
	der, err = x509.MarshalPKCS8PrivateKey(key)
	i.key = text("PRIVATE KEY", der, err)
	der, err = x509.CreateCertificate(rand.Reader, e.cert, e.cert, e.key.Public(), e.key)
	i.believes = text("CERTIFICATE", der, err)
	return i
}

// peerOptions returns the options of a node with its own files.
func peerOptions(t testing.TB, i identity) certs.PeerOptions {
	t.Helper()
	f := files(t)
	putPair(t, f, i.cert, i.key)
	put(t, f.ClientCA, i.believes)
	return certs.PeerOptions{Options: certs.Options{Files: f}, Cluster: "test", Network: dialFunc(dialTCP), HandshakeTimeout: time.Minute}
}

func openPeers(t testing.TB, o certs.PeerOptions) *certs.Peers {
	t.Helper()
	p, err := certs.OpenPeers(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// echoes answers each connection with the first data that it receives. open may
// be nil.
func echoes(t testing.TB, l net.Listener, open func(net.Conn) (net.Conn, error)) (address string) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				if open != nil {
					c, err := open(conn)
					if err != nil {
						// Closing would send a reset that could overtake the
						// data sent before it.
						conn.(*net.TCPConn).CloseWrite()
						io.Copy(io.Discard, conn)
						return
					}
					defer c.Close()
					conn = c
				}
				b := make([]byte, 4)
				if _, err := io.ReadFull(conn, b); err == nil {
					conn.Write(b)
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String()
}

// speak dials and lets one word be echoed.
func speak(t testing.TB, dial func(context.Context, string) (net.Conn, error), address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "word"); err != nil {
		return err
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if string(b) != "word" {
		return fmt.Errorf("the answer is %q", b)
	}
	return nil
}

// Two nodes with TLS accept each other only with valid certificates.
func TestNodesAuthenticateEachOther(t *testing.T) {
	own, strange := newCA(t), newCA(t)
	other := newElsewhere(t)
	ended := member("n2")
	ended.From, ended.Until = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	foreign := member("n2")
	foreign.Cluster = "other"
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	good := own.identity(member("n1"))
	unknown := strange.identity(member("n2"))
	unknown.believes = good.believes
	client := own.identity(certs.Request{Name: "ann"})
	for _, tt := range []struct {
		name          string
		dials, serves identity
		fault         string
	}{
		{"both of the authority", own.identity(member("n2")), good, ""},
		{"two authorities that both believe", strange.identity(member("n2"), own), own.identity(member("n1"), strange), ""},
		{"the one that dials is of an unknown authority", unknown, good, "unknown certificate authority"},
		{"the one that serves is", good, unknown, "unknown authority"},
		{"the one that dials has ended", own.identity(ended), good, "expired certificate"},
		{"the one that serves has", good, own.identity(ended), "expired"},
		{"the one that dials is of another cluster", own.identity(foreign), good, "bad certificate"},
		{"the one that serves is", good, own.identity(foreign), "different cluster"},
		{"the one that dials is a client", client, good, "bad certificate"},
		{"the one that serves is", good, client, "not trusted"},
		{"another authority, names of DNS", other.identity("n2.node.test", both...), other.identity("n1.node.test", both...), ""},
		{"for clients alone", other.identity("n2.node.test", x509.ExtKeyUsageClientAuth), other.identity("n1.node.test", both...), "bad certificate"},
		{"the one that dials names no node", other.identity("n2.test", both...), other.identity("n1.node.test", both...), "bad certificate"},
		{"the one that serves names none", other.identity("n2.node.test", both...), other.identity("*.node.test", both...), "names no node"},
		{"the one that serves names two", other.identity("n2.node.test", both...), other.identity("n1.node.test n3.node.test", both...), "several nodes"},
	} {
		for _, allow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, allow), func(t *testing.T) {
				serves, dials := peerOptions(t, tt.serves), peerOptions(t, tt.dials)
				serves.Allow, dials.Allow = allow, allow
				address := echoes(t, listen(t), openPeers(t, serves).Accept)
				err := speak(t, openPeers(t, dials).Dial, address)
				if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
					t.Errorf("%v, wanted %q", err, tt.fault)
				}
			})
		}
	}
}

// A node's own certificate must contain its name, because other nodes would
// reject its messages otherwise.
func TestOwnCertificateNamesTheNode(t *testing.T) {
	own := newCA(t)
	o := peerOptions(t, own.identity(member("n1")))
	o.Node = "n1"
	p := openPeers(t, o)
	for named, q := range map[string]certs.Request{"to node n2": member("n2"), "names no node": {Name: "n1"}} {
		cert, key := own.issue(q)
		putPair(t, o.Files, cert, key)
		if err := p.Reload(); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%q is taken: %v", named, err)
		}
		if _, err := certs.OpenPeers(o); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("it starts with one that is %q: %v", named, err)
		}
	}
	cert, key := own.issue(member("n1"))
	putPair(t, o.Files, cert, key)
	if err := p.Reload(); err != nil {
		t.Error(err)
	}
}

// A handshake with anything but a node fails and is reported.
func TestHandshakeWithNonNodeFails(t *testing.T) {
	own := newCA(t)
	o := peerOptions(t, own.identity(member("n1")))
	var l logs
	registry := prometheus.NewRegistry()
	o.Logger, o.Registerer = l.logger(), registry
	address := echoes(t, listen(t), openPeers(t, o).Accept)
	node := own.client(&own, member("n2"))
	node.ServerName, node.NextProtos = "elsewhere.example", []string{certs.PeerProtocol}
	over := func(change func(*tls.Config)) func(context.Context, string) (net.Conn, error) {
		c := node.Clone()
		change(c)
		return func(_ context.Context, address string) (net.Conn, error) { return tls.Dial("tcp", address, c) }
	}
	if err := speak(t, over(func(*tls.Config) {}), address); err != nil {
		t.Fatalf("a node: %v", err)
	}
	for i, tt := range []struct {
		name string
		dial func(context.Context, string) (net.Conn, error)
	}{
		{"without TLS", dialTCP},
		{"TLS 1.2", over(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })},
		{"without a certificate", over(func(c *tls.Config) { c.Certificates = nil })},
		{"without a protocol", over(func(c *tls.Config) { c.NextProtos = nil })},
		{"another protocol", over(func(c *tls.Config) { c.NextProtos = []string{"h2"} })},
	} {
		if err := speak(t, tt.dial, address); err == nil {
			t.Errorf("%s: it is answered", tt.name)
		}
		until(t, tt.name+" is counted", func() bool { return metric(t, registry, "hostd_peer_accepted_total", "refused") == float64(i+1) })
	}
	if n := l.count("rejected a connection"); n != 1 {
		t.Errorf("%d lines tell of it, wanted 1 in a minute", n)
	}
	if n := metric(t, registry, "hostd_peer_accepted_total", "tls"); n != 1 {
		t.Errorf("%v nodes are counted, wanted 1", n)
	}
	if _, err := certs.OpenPeers(certs.PeerOptions{Options: certs.Options{Files: certs.Files{Cert: o.Files.Cert, Key: o.Files.Key}}}); err == nil {
		t.Error("nothing is missed without an authority")
	}
}

// counted counts the connections of a dialer.
func counted(o *certs.PeerOptions) *atomic.Int64 {
	n, dial := new(atomic.Int64), o.Network
	o.Network = dialFunc(func(ctx context.Context, address string) (net.Conn, error) {
		n.Add(1)
		return dial.Dial(ctx, address)
	})
	return n
}

// badRequest answers a TLS handshake like a server without TLS, and lets
// everything else be echoed.
func badRequest(conn net.Conn) (net.Conn, error) {
	r := bufio.NewReader(conn)
	if first, err := r.Peek(1); err != nil || first[0] == 0x16 {
		io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return nil, errors.Join(err, errors.New("TLS"))
	}
	return plainly{r, conn}, nil
}

// A node that allows TLS detects whether another node uses TLS, rarely dials
// twice, and notices a change in time. A node that requires TLS sends
// nothing without it.
func TestOptionalTLSDetectsPeersMode(t *testing.T) {
	own := newCA(t)
	now := new(atomic.Int64)
	now.Store(time.Now().UnixNano())
	dials := peerOptions(t, own.identity(member("n2")))
	dials.Allow, dials.Now = true, func() time.Time { return time.Unix(0, now.Load()) }
	made := counted(&dials)
	allows := openPeers(t, dials)
	required := peerOptions(t, own.identity(member("n3")))
	requires := openPeers(t, required)
	secure := openPeers(t, peerOptions(t, own.identity(member("n1"))))

	var open atomic.Pointer[func(net.Conn) (net.Conn, error)]
	use := func(f func(net.Conn) (net.Conn, error)) { open.Store(&f) }
	address := echoes(t, listen(t), func(c net.Conn) (net.Conn, error) { return (*open.Load())(c) })
	expect := func(what string, p *certs.Peers, ok bool, connections int64) {
		t.Helper()
		before := made.Load()
		if err := speak(t, p.Dial, address); (err == nil) != ok {
			t.Errorf("%s: %v", what, err)
		}
		if n := made.Load() - before; n != connections {
			t.Errorf("%s: %d connections, wanted %d", what, n, connections)
		}
	}
	use(badRequest)
	expect("TLS is tried first", allows, true, 2)
	expect("that there is none is remembered", allows, true, 1)
	expect("one that requires it", requires, false, 0)
	now.Add(int64(time.Minute))
	expect("it is tried again after a while", allows, true, 2)
	use(secure.Accept)
	expect("the other one has begun to require it", allows, false, 1)
	expect("which shows", allows, true, 1)
	expect("and stays", allows, true, 1)
	use(badRequest)
	expect("there is none for now", allows, true, 2)
	use(secure.Accept)
	unread, err := allows.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	unread.Close()
	expect("who listened to no answer has found nothing out", allows, true, 1)
	expect("one that requires it finds it", requires, true, 0)
	use(badRequest)
	expect("there is none any more", allows, true, 2)
	for _, cut := range []string{"", "\x15\x03\x03\x00\x02\x02\x28"} {
		now.Add(int64(time.Minute))
		use(func(c net.Conn) (net.Conn, error) { io.WriteString(c, cut); return nil, errors.New("cut") })
		expect("a handshake that breaks off is no answer", allows, false, 1)
	}
	// Listeners for clients, with TLS and without.
	pair, err := tls.X509KeyPair(own.issue(node()))
	if err != nil {
		t.Fatal(err)
	}
	use(func(c net.Conn) (net.Conn, error) {
		b := bufio.NewReader(c)
		first, err := b.Peek(1)
		if err != nil || first[0] != 0x16 {
			return plainly{b, c}, err
		}
		s := tls.Server(plainly{b, c}, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}})
		return s, s.Handshake()
	})
	expect("the listener for clients has TLS", allows, true, 2)
}

// plainly is a connection that reads from another reader.
type plainly struct {
	from io.Reader
	net.Conn
}

func (p plainly) Read(b []byte) (int, error) { return p.from.Read(b) }

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// dialFunc connects to other nodes.
type dialFunc func(ctx context.Context, address string) (net.Conn, error)

func (f dialFunc) Dial(ctx context.Context, address string) (net.Conn, error) { return f(ctx, address) }
