package hostile

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestForeignWebPageCannotWrite checks that a web page in a browser on the
// node's machine can write nothing, even if its host name resolves to the node.
func TestForeignWebPageCannotWrite(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--allow-hosts", "lb.example"}})
	beside := newNeighbour(t, node)
	beside.adds()
	at := node.API()
	send := func(path, host, origin string) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, at+path, strings.NewReader(`{"entityType":"counter","entityId":"page","command":"add","json":{"amount":7}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for _, path := range []string{entityPath + "SendCommand", "/hostd.module.v1.ModuleService/UploadModule", "/hostd.cluster.v1.ClusterService/PutSetting", peerPath + "Probe", "/hostd.hop/hostd.entity.v1.EntityService/SendCommand"} {
		for _, c := range [][2]string{{"evil.example", "http://evil.example"}, {"evil.example:7070", ""}, {"", "http://evil.example"}} {
			if status := send(path, c[0], c[1]); status != http.StatusForbidden {
				t.Errorf("%s by %q from %q: %d", path, c[0], c[1], status)
			}
		}
	}
	if r, err := beside.client.Query(t.Context(), client.Query{EntityType: "counter", EntityID: "page", Name: "total"}); err != nil || r.Sequence != 0 {
		t.Errorf("a page's command took effect: %+v, %v", r, err)
	}
	for _, host := range []string{"lb.example", "localhost", "[::1]:80", ""} {
		if status := send(entityPath+"SendCommand", host, ""); status != http.StatusOK {
			t.Errorf("by %q: %d", host, status)
		}
	}
	beside.adds()
	at = node.PeerAPI()
	for _, path := range []string{peerPath + "Probe", "/hostd.hop/hostd.entity.v1.EntityService/SendCommand"} {
		if status := send(path, "evil.example", "http://evil.example"); status != http.StatusForbidden {
			t.Errorf("%s where other nodes are served: %d", path, status)
		}
	}
}
