package clienttls

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/testkit"
)

// get requests a URL of a node, and returns the status and the body.
func get(url string, config *tls.Config) (status int, body string, err error) {
	if config != nil {
		config = config.Clone() // the transport modifies it
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: config != nil && config.NextProtos == nil, DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport, Timeout: testkit.Patience}).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// refusedTime is how long a call that must not be answered is retried.
const refusedTime = time.Second

// call makes a call that must reach the node's API.
func call(t testing.TB, address string, config *tls.Config) error {
	t.Helper()
	return callFor(t, testkit.Patience, address, config)
}

// callFor is call with a time limit.
func callFor(t testing.TB, patience time.Duration, address string, config *tls.Config) error {
	t.Helper()
	c, err := client.New([]string{address}, client.Options{TLS: config})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = c.Cluster(ctx)
	return err
}

// A node that requires TLS answers plain requests only if they are health
// probes or calls of other nodes.
func TestRequiredTLSRejectsPlainRequests(t *testing.T) {
	own, clients, strange := newAuthority(t), newAuthority(t), newAuthority(t)
	f := newFiles(t, own, clients)
	bob := trust(holding(clients.client("bob")), own)
	n := testkit.NewNode(t, testkit.NodeOptions{Listen: "127.0.0.1:0", TLS: bob, Flags: f.flags("require", "require")})
	n.Start()
	n.Push("counter")
	if _, err := n.Client(client.Options{}).Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
		t.Fatal(err)
	}
	stream := n.Client(client.Options{}).Stream(client.StreamOptions{})
	told := make(chan error, 1)
	if err := stream.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}, func(_ client.Reply, err error) { told <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err != nil {
		t.Errorf("on a stream: %v", err)
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Error(err)
	}
	plain := "http://" + n.Address()
	if err := call(t, n.Address(), nil); client.CodeOf(err) != connect.CodePermissionDenied || !contains(err, "https://") {
		t.Errorf("without TLS: %v", err)
	}
	for path, want := range map[string]int{"/metrics": 403, "/": 403, "/grpc.health.v1.Health/Check": 403, "/hostd.entity.v1.EntityService/QueryEntity?connect=v1&encoding=json&message=%7B%7D": 403, "/livez": 200, "/readyz": 200} {
		if status, body, err := get(plain+path, nil); err != nil || status != want {
			t.Errorf("%s without TLS: %d %q, %v, wanted %d", path, status, body, err, want)
		}
	}
	// Other nodes connect without TLS to their own listener, which has its own
	// check.
	status, body, err := get(plain+"/hostd.peer.v1.PeerService/Probe", nil)
	if err != nil || strings.Contains(body, "TLS") {
		t.Errorf("another node: %d %q, %v", status, body, err)
	}
	if status, _, err := get("https://"+n.Address()+"/metrics", bob); err != nil || status != 200 {
		t.Errorf("metrics over TLS: %d, %v", status, err)
	}
	// Clients can choose either HTTP/1.1 or HTTP/2.
	for proto, want := range map[string]string{"http/1.1": "http/1.1", "h2": "h2", "": ""} {
		config := bob.Clone()
		if proto != "" {
			config.NextProtos = []string{proto}
		}
		conn, err := tls.Dial("tcp", n.Address(), config)
		if err != nil {
			t.Errorf("ALPN %q: %v", proto, err)
			continue
		}
		if state := conn.ConnectionState(); state.NegotiatedProtocol != want || state.Version != tls.VersionTLS13 {
			t.Errorf("ALPN %q gives %q, version %x", proto, state.NegotiatedProtocol, state.Version)
		}
		conn.Close()
	}
	one := func(c *tls.Config) *tls.Config { c.NextProtos = []string{"http/1.1"}; return c }
	if status, body, err := get("https://"+n.Address()+"/readyz", one(bob.Clone())); err != nil || status != 200 {
		t.Errorf("over HTTP/1.1: %d %q, %v", status, body, err)
	}
	for name, tt := range map[string]struct {
		config *tls.Config
		fault  string
	}{
		"TLS 1.2":                     {one(&tls.Config{RootCAs: bob.RootCAs, MaxVersion: tls.VersionTLS12}), "protocol version"},
		"no certificate":              {one(trust(nil, own)), "certificate required"},
		"an unknown client":           {one(trust(holding(strange.client("bob")), own)), "unknown certificate authority"},
		"a client whose time is over": {one(trust(holding(clients.issue(certs.Request{Name: "bob", From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)})), own)), "expired certificate"},
		"an unknown node":             {one(trust(holding(clients.client("bob")), strange)), "unknown authority"},
		"another name of the node":    {one(&tls.Config{RootCAs: bob.RootCAs, ServerName: "n2.example"}), "to match n2.example"},
	} {
		if status, _, err := get("https://"+n.Address()+"/readyz", tt.config); !contains(err, tt.fault) {
			t.Errorf("%s: %d, %v, wanted %q", name, status, err, tt.fault)
		}
		if err := callFor(t, refusedTime, n.Address(), tt.config); err == nil {
			t.Errorf("%s: a call is answered", name)
		}
	}
	// An aborted handshake only costs the node a connection for a while.
	for _, begins := range []string{"\x16", "\x16\x03\x01\xff\xff", "\x16\x03\x01\x00\x05hello", "\x80\x2e\x01\x00\x02"} {
		conn, err := net.Dial("tcp", n.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, begins)
	}
	if err := call(t, n.Address(), bob); err != nil {
		t.Errorf("beside broken handshakes: %v", err)
	}
	if strings.Contains(n.Log(), "BEGIN") {
		t.Error("a key or certificate is logged")
	}
	n.Stop()
}

// A node that allows TLS accepts connections with and without TLS on one port.
// A node without TLS answers no handshake.
func TestAllowedAndDisabledTLS(t *testing.T) {
	own := newAuthority(t)
	f := newFiles(t, own, own)
	n := testkit.NewNode(t, testkit.NodeOptions{Listen: "127.0.0.1:0", Flags: f.flags("allow", "optional")})
	n.Start()
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": trust(nil, own), "a client": trust(holding(own.client("bob")), own)} {
		if err := call(t, n.Address(), config); err != nil {
			t.Errorf("allow, %s: %v", name, err)
		}
	}
	if err := callFor(t, refusedTime, n.Address(), trust(holding(newAuthority(t).client("bob")), own)); err == nil {
		t.Error("allow: a certificate of nobody's is taken for none")
	}
	n.Stop()
	n.SetFlags(f.flags("off", "optional")...)
	n.Start()
	if err := call(t, n.Address(), nil); err != nil {
		t.Errorf("off: %v", err)
	}
	if err := callFor(t, refusedTime, n.Address(), trust(nil, own)); err == nil {
		t.Error("off: a call over TLS is answered")
	}
	if _, _, err := get("https://"+n.Address()+"/livez", trust(nil, own)); !contains(err, "HTTP response to HTTPS client") {
		t.Errorf("off: a handshake gets %v", err)
	}
}

// A node reads its files at its start and on SIGHUP. If the files are invalid,
// the node reports the reason. A start then fails, and a running node continues
// with the previous files.
func TestCertificateFilesAreReloaded(t *testing.T) {
	own := newAuthority(t)
	f := newFiles(t, own, own)
	bob := trust(holding(own.client("bob")), own)
	n := testkit.NewNode(t, testkit.NodeOptions{Listen: "127.0.0.1:0", TLS: bob, Flags: f.flags("require", "optional")})
	n.Start()
	failures := func() string {
		_, body, err := get("https://"+n.Address()+"/metrics", bob)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(strings.NewReader(body))
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "hostd_tls_reload_failures_total{use=\"server\"} "); ok {
				return value
			}
		}
		return ""
	}
	if got := failures(); got != "0" {
		t.Fatalf("%q failures at the start", got)
	}
	good, err := os.ReadFile(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Key, []byte("not a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Signal(syscall.SIGHUP)
	n.Await("the failure is counted", func() bool { return failures() != "0" })
	if !strings.Contains(n.Log(), "the previous ones stay in use") {
		t.Errorf("nothing is logged:\n%s", n.Log())
	}
	if status, _, err := get("http://"+n.Address()+"/readyz", nil); err != nil || status != 200 {
		t.Errorf("the node is not ready: %d, %v", status, err)
	}
	if err := call(t, n.Address(), bob); err != nil {
		t.Errorf("with the pair of before: %v", err)
	}
	if err := os.WriteFile(f.Key, good, 0o600); err != nil {
		t.Fatal(err)
	}
	f.renew(own, "n1", "127.0.0.1")
	n.Signal(syscall.SIGHUP)
	n.Await("the new pair is shown", func() bool { return serial(t, n.Address(), bob) == serialOf(t, f) })
	n.Stop()
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	if err := n.TryStart(); err == nil || !strings.Contains(n.Log(), "read certificates") {
		t.Errorf("without a key: %v\n%s", err, n.Log())
	}
}

// serial returns the serial number of the certificate that a node presents.
func serial(t testing.TB, address string, config *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// serialOf returns the serial number of the certificate in the files.
func serialOf(t testing.TB, f nodeFiles) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.SerialNumber.String()
}

// The command line reports at once which option is missing.
func TestCommandLineReportsMissingTLSOptions(t *testing.T) {
	own, strange := newAuthority(t), newAuthority(t)
	f := newFiles(t, own, own)
	bob := own.client("bob")
	n := testkit.NewNode(t, testkit.NodeOptions{Listen: "127.0.0.1:0", TLS: trust(holding(bob), own), Flags: f.flags("require", "require")})
	n.Start()
	cert, key := issueFiles(t, own)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--addr", n.API(), "--cacert", own.file, "--cert", cert, "--key", key}, 0, "n1"},
		{[]string{"--addr", n.Address(), "--cacert", own.file, "--cert", cert, "--key", key}, 0, "n1"},
		{[]string{"--addr", n.API(), "--cacert", own.file}, 1, "--cert and --key"},
		{[]string{"--addr", n.API(), "--cacert", strange.file, "--cert", cert, "--key", key}, 1, "--cacert"},
		{[]string{"--addr", n.API()}, 1, "--cacert"},
		{[]string{"--addr", "http://" + n.Address()}, 1, "https://"},
		{[]string{"--addr", "http://" + n.Address(), "--cacert", own.file}, 2, "use https"},
		{[]string{"--addr", n.API(), "--cacert", own.file, "--cert", cert}, 2, "must be set together"},
		{[]string{"--addr", n.API(), "--cacert", key}, 2, "contains no certificate"},
		{[]string{"--addr", n.API(), "--cacert", cert + ".none"}, 2, "no such file"},
	} {
		out, code := n.Run(append([]string{"node", "ls", "--timeout", "10s"}, tt.args...)...)
		if code != tt.code || !strings.Contains(out, tt.says) {
			t.Errorf("%q ended with %d, wanted %d and %q:\n%s", tt.args, code, tt.code, tt.says, out)
		}
	}
	for name, value := range map[string]string{"HOSTD_ADDR": n.API(), "HOSTD_CACERT": own.file, "HOSTD_CERT": cert, "HOSTD_KEY": key} {
		t.Setenv(name, value)
	}
	if out, code := n.Run("entity", "hot"); code != 0 {
		t.Errorf("by the environment: %d\n%s", code, out)
	}
	if out, code := n.Run("entity", "hot", "--help"); code != 0 || strings.Contains(out, "PRIVATE") {
		t.Errorf("help: %d\n%s", code, out)
	}
}

func issueFiles(t testing.TB, of authority) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = fmt.Sprintf("%s/c.crt", dir), fmt.Sprintf("%s/c.key", dir)
	if err := of.Issue(cert, key, request("bob")); err != nil {
		t.Fatal(err)
	}
	return cert, key
}
