package edge_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
)

// If TLS is required, a call without TLS is rejected, except calls of other
// nodes and health probes.
func TestCallsWithoutTLSAreRejected(t *testing.T) {
	internal := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "internal") })
	s := serve(t, edge.Options{TLSOnly: true, Metrics: internal, Internal: map[string]http.Handler{"/hostd.peer.v1.PeerService/": internal, leaderproxy.Path: internal}})
	for path, refused := range map[string]bool{
		"POST " + entityPath + "SendCommand": true, "POST " + modulePath + "UploadModule": true, "POST " + clusterPath + "GetCluster": true,
		"GET " + entityPath + "QueryEntity?connect=v1&encoding=json&message=%7B%7D": true, "GET /metrics": true, "GET /nothing": true, "OPTIONS " + entityPath + "SendCommand": true,
		"POST /grpc.health.v1.Health/Check": true, "POST /hostd.peer.v1.PeerServices": true,
		"POST /hostd.peer.v1.PeerService/Probe": false, "POST " + leaderproxy.Path + "x": false, "GET /livez": false, "GET /readyz": false,
	} {
		method, rest, _ := strings.Cut(path, " ")
		r, err := http.NewRequest(method, s.url+rest, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := res.StatusCode == http.StatusForbidden && strings.Contains(string(body), "https://"); got != refused {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}
