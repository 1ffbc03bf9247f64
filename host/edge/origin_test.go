package edge_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
)

// TestForeignPagesAreRejected: on every path except the health probes, the server
// rejects requests that a browser sends for a page of a different origin, and
// requests with a Host that is not the node's. Programs and the node's own
// origin are served.
func TestForeignPagesAreRejected(t *testing.T) {
	named := serve(t, edge.Options{Hosts: []string{"node.example", "lb.example"}, Metrics: http.NotFoundHandler(), Internal: map[string]http.Handler{
		"/hostd.peer.v1.PeerService/": http.NotFoundHandler()}})
	open := serve(t, edge.Options{})
	address := strings.TrimPrefix(named.url, "http://")
	for _, c := range []struct {
		name, host, origin, site string
		refused, refusedOpen     bool // by the node that has host names, by the node that has none
	}{
		{name: "a program"},
		{name: "a program by localhost", host: "localhost:7070"},
		{name: "a program by IPv6", host: "[::1]:7070"},
		{name: "a load balancer by its name", host: "lb.example"},
		{name: "a load balancer by its name and port", host: "LB.example.:443"},
		{name: "a name that leads here", host: "evil.example", refused: true},
		{name: "a name with a port that leads here", host: "evil.example:7070", refused: true},
		{name: "a name that looks like an address", host: "127.0.0.1.evil.example", refused: true},
		{name: "a page whose name leads here", host: "evil.example", origin: "http://evil.example", site: "same-origin", refused: true},
		{name: "different origin", origin: "http://evil.example", refused: true, refusedOpen: true},
		{name: "another port", host: "localhost:7070", origin: "http://localhost:8080", refused: true, refusedOpen: true},
		{name: "no origin to tell", origin: "null", refused: true, refusedOpen: true},
		{name: "another site", site: "cross-site", refused: true, refusedOpen: true},
		{name: "another name of the site", site: "same-site", refused: true, refusedOpen: true},
		{name: "the node's own page", host: "node.example:7070", origin: "http://node.example:7070", site: "same-origin"},
		{name: "the node's own page in an old browser", host: "node.example:7070", origin: "http://node.example:7070"},
		{name: "the node's own page behind TLS", host: "lb.example", origin: "https://lb.example"},
		{name: "a person who typed it", site: "none"},
	} {
		for _, path := range []string{
			"POST " + entityPath + "SendCommand", "GET " + entityPath + "QueryEntity?connect=v1&encoding=json&message=%7B%7D", "POST " + modulePath + "UploadModule",
			"POST " + clusterPath + "GetCluster", "POST /hostd.peer.v1.PeerService/Probe", "POST " + leaderproxy.Path + "x", "GET /metrics", "GET /nothing", "OPTIONS " + entityPath + "SendCommand",
			"GET /livez", "GET /readyz",
		} {
			for _, s := range []*site{named, open} {
				method, rest, _ := strings.Cut(path, " ")
				r, err := http.NewRequest(method, s.url+rest, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Host = c.host
				r.Header.Set("Content-Type", "application/json")
				for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
					if value != "" {
						r.Header.Set(name, value)
					}
				}
				want := c.refused && s == named || c.refusedOpen && s == open
				if rest == "/livez" || rest == "/readyz" {
					want = false
				}
				if status, body := do(t, r); (status == http.StatusForbidden) != want {
					t.Errorf("%s: %s is answered with %d %s", c.name, path, status, body)
				}
			}
		}
	}
	// A reverse proxy that calls the node by its address.
	target := &url.URL{Scheme: "http", Host: address}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() }})
	defer proxy.Close()
	res, err := http.Post(proxy.URL+entityPath+"SendCommand", "application/json", strings.NewReader(`{"entityType":"counter","entityId":"a","command":"add","json":{"amount":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		t.Errorf("by a proxy: %d %s", res.StatusCode, body)
	}
}
