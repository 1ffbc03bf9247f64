package security

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestHealthListenerNeedsNoCredential checks that a node that requires
// credentials answers health probes without credentials on a separate listener,
// which answers nothing else.
func TestHealthListenerNeedsNoCredential(t *testing.T) {
	at := fmt.Sprintf("127.%d.%d.%d:7072", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
	dir := t.TempDir()
	tokens, token := filepath.Join(dir, "tokens"), filepath.Join(dir, "token")
	node := testkit.NewNode(t, testkit.NodeOptions{Flags: []string{"--health-listen", at, "--auth", "required", "--token-file", tokens}})
	if out, code := node.Run("token", "create", "ci", "--file", tokens, "--out", token); code != 0 {
		t.Fatal(out)
	}
	node.Start()
	transport := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	defer transport.CloseIdleConnections()
	calls := &http.Client{Transport: transport, Timeout: testkit.Patience}
	for path := range table {
		if status := call(t, calls, "http://"+at+path, anonymous, "", ""); status != http.StatusNotFound {
			t.Errorf("%s is answered with %d where the node tells how it is", path, status)
		}
	}
	for path, want := range map[string]string{"/livez": "", "/readyz": "", "/metrics": "hostd_", "/": "404", "/console/": "404", "/metrics/": "404", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "404"} {
		res, err := calls.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if absent := res.StatusCode == http.StatusNotFound; err != nil || absent != (want == "404") || !absent && (res.StatusCode != http.StatusOK || !strings.Contains(string(text), want)) {
			t.Errorf("%s: %d, %v", path, res.StatusCode, err)
		}
	}
	res, err := calls.Post("http://"+at+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "SERVING") {
		t.Errorf("gRPC health: %d %s, %v", res.StatusCode, text, err)
	}
	node.Stop()
	if _, err := calls.Get("http://" + at + "/livez"); err == nil {
		t.Error("the listener is open though the node has ended")
	}
}
