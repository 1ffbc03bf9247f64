package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/certs"
)

// ca is an authority in a directory of its own.
type ca struct {
	*certs.Authority
	t   testing.TB
	dir string
}

func newCA(t testing.TB) ca {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	a, err := certs.CreateAuthority(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	return ca{a, t, dir}
}

func (c ca) pem() []byte { return contents(c.t, filepath.Join(c.dir, certs.AuthorityCert)) }

// issue returns a certificate and its key in PEM.
func (c ca) issue(q certs.Request) (cert, key []byte) {
	c.t.Helper()
	dir := c.t.TempDir()
	certFile, keyFile := certs.NodeFiles(dir, "x")
	if err := c.Issue(certFile, keyFile, q); err != nil {
		c.t.Fatal(err)
	}
	return contents(c.t, certFile), contents(c.t, keyFile)
}

// node returns the request for a node at 127.0.0.1 and "a".
func node() certs.Request {
	return certs.Request{Name: "n1", Cluster: "test", Hosts: []string{"127.0.0.1", "a"}}
}

// client returns the configuration of a client that trusts this authority. Its
// certificate is issued by of, unless of is nil.
func (c ca) client(of *ca, q certs.Request) *tls.Config {
	c.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AddCert(c.Cert)
	if of != nil {
		pair, err := tls.X509KeyPair(of.issue(q))
		if err != nil {
			c.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// files returns the paths of a listener's files in a new directory.
func files(t testing.TB) certs.Files {
	dir := t.TempDir()
	return certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "ca.crt")}
}

// put replaces a file atomically, as a rotation of certificates does.
func put(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// pipe replaces a file by a named pipe without a writer.
func pipe(t testing.TB, path string) {
	t.Helper()
	if err := errors.Join(syscall.Mkfifo(path+".new", 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// putPair replaces a chain and its key.
func putPair(t testing.TB, f certs.Files, cert, key []byte) {
	t.Helper()
	put(t, f.Cert, cert)
	put(t, f.Key, key)
}

// logs is a log that can be read while it is written.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// open opens certificates for the duration of the test.
func open(t testing.TB, o certs.Options) *certs.Reloader {
	t.Helper()
	r, err := certs.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// serve serves a handler with the certificates like the server of a node, and
// returns its address.
func serve(t testing.TB, r *certs.Reloader, l net.Listener, h http.Handler) string {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	s := &http.Server{
		Handler: r.Wrap(h), Protocols: protocols, ConnContext: r.ConnContext, ConnState: r.State,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(certs.Listen(l, r.Config()))
	}()
	t.Cleanup(func() { s.Close(); <-ended })
	return l.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// whole is a handler that answers with the protocol version.
var whole = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })

// get makes one call on a connection of its own.
func get(address string, config *tls.Config) (proto string, err error) {
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("https://" + address)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// handshake returns why a server rejects a client. HTTP/2 doesn't show that,
// because the client's part of the handshake completes before the server's
// check.
func handshake(address string, config *tls.Config) error {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return err
}

// shown returns the serial number of the certificate that a server sends.
func shown(t testing.TB, address string, config *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// until waits until the condition is met.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// metric returns the value of a series, by its name and label value.
func metric(t testing.TB, registry *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s{%s}", name, label)
	return 0
}

// A handshake succeeds only with valid certificates on both sides.
func TestHandshakes(t *testing.T) {
	own, clients, strange := newCA(t), newCA(t), newCA(t)
	good := own.client(&clients, certs.Request{Name: "bob"})
	expired := certs.Request{Name: "bob", From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)}
	with := func(c *tls.Config, change func(*tls.Config)) *tls.Config { change(c); return c }
	for _, tt := range []struct {
		name   string
		auth   tls.ClientAuthType
		client *tls.Config
		fault  string
	}{
		{"no certificate, none asked for", tls.NoClientCert, own.client(nil, certs.Request{}), ""},
		{"no certificate, optional", tls.VerifyClientCertIfGiven, own.client(nil, certs.Request{}), ""},
		{"a good one, optional", tls.VerifyClientCertIfGiven, good, ""},
		{"of an unknown authority, optional", tls.VerifyClientCertIfGiven, own.client(&strange, certs.Request{Name: "bob"}), "unknown certificate authority"},
		{"a good one, required", tls.RequireAndVerifyClientCert, good, ""},
		{"no certificate, required", tls.RequireAndVerifyClientCert, own.client(nil, certs.Request{}), "certificate required"},
		{"of an unknown authority, required", tls.RequireAndVerifyClientCert, own.client(&strange, certs.Request{Name: "bob"}), "unknown certificate authority"},
		{"of the server's authority, required", tls.RequireAndVerifyClientCert, own.client(&own, certs.Request{Name: "bob"}), "unknown certificate authority"},
		{"ended, required", tls.RequireAndVerifyClientCert, own.client(&clients, expired), "expired certificate"},
		{"TLS 1.2", tls.NoClientCert, with(own.client(nil, certs.Request{}), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "protocol version not supported"},
		{"another server is wanted", tls.NoClientCert, with(own.client(nil, certs.Request{}), func(c *tls.Config) { c.ServerName = "b" }), "not b"},
		{"the server's authority is not known", tls.NoClientCert, strange.client(nil, certs.Request{}), "unknown authority"},
		{"the server's has ended", tls.NoClientCert, with(own.client(nil, certs.Request{}), func(c *tls.Config) { c.Time = func() time.Time { return time.Now().Add(2 * certs.LeafLife) } }), "expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := files(t)
			cert, key := own.issue(node())
			putPair(t, f, cert, key)
			put(t, f.ClientCA, clients.pem())
			address := serve(t, open(t, certs.Options{Files: f, ClientAuth: tt.auth}), listen(t), whole)
			proto, err := get(address, tt.client)
			if tt.fault != "" {
				err = handshake(address, tt.client)
			}
			switch {
			case tt.fault == "" && (err != nil || proto != "HTTP/2.0"):
				t.Errorf("%q, %v", proto, err)
			case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
				t.Errorf("%q, %v, wanted %q", proto, err, tt.fault)
			}
		})
	}
}

// A replaced certificate is used without a restart, after a change in the
// directory and after Reload. Existing connections stay open.
func TestReplacedCertificateIsUsed(t *testing.T) {
	own := newCA(t)
	f := files(t)
	f.ClientCA = ""
	cert, key := own.issue(node())
	putPair(t, f, cert, key)
	var l logs
	r := open(t, certs.Options{Files: f, Logger: l.logger()})
	go r.Run(t.Context())
	address := serve(t, r, listen(t), whole)
	before := shown(t, address, own.client(nil, certs.Request{}))
	kept := &http.Transport{TLSClientConfig: own.client(nil, certs.Request{}), ForceAttemptHTTP2: true}
	defer kept.CloseIdleConnections()
	ask := func() {
		t.Helper()
		res, err := (&http.Client{Transport: kept}).Get("https://" + address)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	ask()
	for round := range 3 {
		cert, key = own.issue(node())
		putPair(t, f, cert, key)
		until(t, fmt.Sprintf("pair %d is shown", round), func() bool { return shown(t, address, own.client(nil, certs.Request{})) != before })
		before = shown(t, address, own.client(nil, certs.Request{}))
		ask()
	}
	cert, key = own.issue(node())
	putPair(t, f, cert, key)
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if shown(t, address, own.client(nil, certs.Request{})) == before {
		t.Error("a reload shows the pair of before")
	}
}

// A secret mount replaces the directory behind a symbolic link.
func TestReplacedSymlinkIsFollowed(t *testing.T) {
	own := newCA(t)
	mount := t.TempDir()
	f := certs.Files{Cert: filepath.Join(mount, "tls.crt"), Key: filepath.Join(mount, "tls.key")}
	fill := func(version string) {
		t.Helper()
		dir := filepath.Join(mount, version)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key := own.issue(node())
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
			os.Symlink(version, filepath.Join(mount, "data.new")), os.Rename(filepath.Join(mount, "data.new"), filepath.Join(mount, "data"))); err != nil {
			t.Fatal(err)
		}
	}
	fill("1")
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("data", name), filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, certs.Options{Files: f})
	go r.Run(t.Context())
	address := serve(t, r, listen(t), whole)
	before := shown(t, address, own.client(nil, certs.Request{}))
	fill("2")
	until(t, "the pair of the other directory is shown", func() bool { return shown(t, address, own.client(nil, certs.Request{})) != before })
}

// Files that cannot be used change nothing and are reported.
func TestInvalidFilesAreNotUsed(t *testing.T) {
	own, clients := newCA(t), newCA(t)
	f := files(t)
	cert, key := own.issue(node())
	_, otherKey := own.issue(node())
	endedCert, endedKey := own.issue(certs.Request{Name: "n1", Cluster: "test", Hosts: []string{"a"}, From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)})
	good := func() {
		putPair(t, f, cert, key)
		put(t, f.ClientCA, clients.pem())
	}
	good()
	var l logs
	registry := prometheus.NewRegistry()
	r := open(t, certs.Options{Files: f, ClientAuth: tls.RequireAndVerifyClientCert, Logger: l.logger(), Registerer: registry})
	address := serve(t, r, listen(t), whole)
	bob := own.client(&clients, certs.Request{Name: "bob"})
	before := shown(t, address, bob)
	for i, tt := range []struct {
		name string
		do   func()
	}{
		{"the key of another", func() { put(t, f.Key, otherKey) }},
		{"an empty certificate", func() { put(t, f.Cert, nil) }},
		{"half a certificate", func() { put(t, f.Cert, cert[:len(cert)/2]) }},
		{"no key", func() { os.Remove(f.Key) }},
		{"a pipe for a key", func() { pipe(t, f.Key) }},
		{"a pipe for a bundle", func() { pipe(t, f.ClientCA) }},
		{"a pair that has ended", func() { putPair(t, f, endedCert, endedKey) }},
		{"no bundle", func() { os.Remove(f.ClientCA) }},
		{"an empty bundle", func() { put(t, f.ClientCA, nil) }},
		{"a bundle with a key", func() { put(t, f.ClientCA, append(clients.pem(), key...)) }},
		{"a bundle with a certificate of nobody's authority", func() { put(t, f.ClientCA, cert) }},
		{"a bundle that breaks off", func() { put(t, f.ClientCA, append(clients.pem(), own.pem()[:200]...)) }},
		{"a bundle that is too large", func() { put(t, f.ClientCA, append(clients.pem(), make([]byte, 1<<20)...)) }},
	} {
		tt.do()
		if err := r.Reload(); err == nil {
			t.Errorf("%s: taken", tt.name)
		}
		if got := metric(t, registry, "hostd_tls_reload_failures_total", ""); got != float64(i+1) {
			t.Errorf("%s: %v failures are counted, wanted %d", tt.name, got, i+1)
		}
		if got := l.count("level=ERROR"); got != i+1 {
			t.Errorf("%s: %d errors are logged, wanted %d", tt.name, got, i+1)
		}
		if _, err := get(address, bob); err != nil || shown(t, address, bob) != before {
			t.Errorf("%s: what was there does not serve on: %v", tt.name, err)
		}
		good()
		if err := r.Reload(); err != nil {
			t.Errorf("%s: mended: %v", tt.name, err)
		}
	}
	for line := range strings.Lines(string(key)) {
		if l.count(strings.TrimSpace(line)) > 0 && !strings.HasPrefix(line, "-----") {
			t.Error("a key is logged")
		}
	}
	if _, err := certs.Open(certs.Options{Files: certs.Files{Cert: f.Cert, Key: f.ClientCA}}); err == nil {
		t.Error("a certificate was taken for a key")
	}
	if _, err := certs.Open(certs.Options{Files: certs.Files{Cert: f.Cert, Key: f.Key}, ClientAuth: tls.RequireAndVerifyClientCert}); err == nil {
		t.Error("certificates of clients are asked for without an authority")
	}
}

// The expiry of certificates is always in a metric, and in the log once a day
// during the last 14 days.
func TestCertificateExpiryIsReported(t *testing.T) {
	own := newCA(t)
	f := files(t)
	now := time.Now()
	end := now.Add(30 * 24 * time.Hour)
	cert, key := own.issue(certs.Request{Name: "n1", Cluster: "test", Hosts: []string{"a"}, Until: end})
	putPair(t, f, cert, key)
	put(t, f.ClientCA, own.pem())
	var l logs
	registry := prometheus.NewRegistry()
	r := open(t, certs.Options{Files: f, Logger: l.logger(), Registerer: registry, Now: func() time.Time { return now }})
	if got := metric(t, registry, "hostd_tls_cert_not_after_seconds", "server"); got != float64(end.Unix()) {
		t.Errorf("the pair ends at %v, wanted %v", got, end.Unix())
	}
	if got := metric(t, registry, "hostd_tls_cert_not_after_seconds", "client-ca"); got != float64(own.Cert.NotAfter.Unix()) {
		t.Errorf("the authority ends at %v, wanted %v", got, own.Cert.NotAfter.Unix())
	}
	for _, tt := range []struct {
		before time.Duration
		warned int
	}{{15 * 24 * time.Hour, 0}, {13 * 24 * time.Hour, 1}, {13*24*time.Hour - time.Minute, 1}, {12*24*time.Hour - time.Minute, 2}, {-time.Hour, 3}} {
		now = end.Add(-tt.before)
		if err := r.Reload(); err != nil {
			t.Fatal(err)
		}
		if got := l.count("will expire soon"); got != tt.warned {
			t.Errorf("%s before its end: %d warnings, wanted %d", tt.before, got, tt.warned)
		}
	}
}
