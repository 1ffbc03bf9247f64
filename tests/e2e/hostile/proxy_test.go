package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// front is a reverse proxy in front of a node. It permits only sending and
// subscribing, names the caller in the usual headers, and reuses a few
// connections for all callers.
func front(t testing.TB, n *testkit.Node, passHost bool) *httptest.Server {
	to, err := url.Parse(n.API())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxConnsPerHost: 3, MaxIdleConnsPerHost: 3}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Header.Set("X-Forwarded-Host", "lb.example")
			r.Out.Header.Set("Forwarded", `for=192.0.2.7;host=lb.example;proto=https`)
			r.Out.Header.Set("X-Real-Ip", "192.0.2.7")
			if passHost {
				r.Out.Host = r.In.Host
			}
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case entityPath + "SubscribeEvents":
			// net/http discards the rest of a request body when the response
			// begins, and the transport would then close the connection to the
			// node.
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			proxy.ServeHTTP(w, r)
		case entityPath + "SendCommand", "/livez", "/readyz":
			proxy.ServeHTTP(w, r)
		default:
			http.Error(w, "the proxy does not let this through", http.StatusForbidden)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestProxyInFront checks that through a proxy with persistent HTTP/1.1
// connections every caller receives its own answers, each command takes effect
// once, and subscribers receive their events, even while other callers try
// request smuggling. Requests that the proxy rejects must not reach the node.
// The proxy calls the node by the load balancer's name, which is in
// allow-hosts, or by the node's address if the proxy does not pass the name on.
func TestProxyInFront(t *testing.T) {
	t.Parallel()
	for _, passHost := range []bool{true, false} {
		t.Run(fmt.Sprint("its name is passed on ", passHost), func(t *testing.T) {
			node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--allow-hosts", "other.example,lb.example"}})
			node.Push("counter")
			proxy := front(t, node, passHost)
			ask := func(host, path, kind, body string) (int, string) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return 0, ""
				}
				r.Host = host
				r.Header.Set("Content-Type", kind)
				res, err := proxy.Client().Do(r)
				if err != nil {
					return 0, err.Error()
				}
				defer res.Body.Close()
				text, _ := io.ReadAll(res.Body)
				return res.StatusCode, string(text)
			}
			const callers, each = 8, 40
			stop := make(chan struct{})
			var bad, all sync.WaitGroup
			smuggled := fmt.Sprintf("POST %sSend HTTP/1.1\r\nHost: lb.example\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n%-90s",
				entityPath, `{"entityType":"counter","entityId":"smuggled","command":"add","json":{"amount":7}}`)
			for range 2 {
				bad.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							ask("lb.example", entityPath+"SendCommand", "application/json", strings.Repeat(smuggled, 2<<20/len(smuggled)))
						}
					}
				})
			}
			for caller := range callers {
				all.Go(func() {
					for n := range each {
						status, text := ask("lb.example", entityPath+"SendCommand", "application/json", fmt.Sprintf(`{"entityType":"counter","entityId":"caller-%d","command":"add","json":{"amount":%d}}`, caller, caller+1))
						var answer struct {
							Sequence string
							JSON     struct{ Total int }
						}
						if status != http.StatusOK || json.Unmarshal([]byte(text), &answer) != nil || answer.Sequence != fmt.Sprint(n+1) || answer.JSON.Total != (n+1)*(caller+1) {
							t.Errorf("caller %d, command %d: %d %.300s", caller, n, status, text)
							return
						}
					}
				})
			}
			all.Wait()
			close(stop)
			bad.Wait()
			for _, path := range []string{"/hostd.module.v1.ModuleService/ListModules", peerPath + "Probe", "/hostd.hop" + entityPath + "SendCommand"} {
				if status, text := ask("lb.example", path, "application/json", "{}"); status != http.StatusForbidden {
					t.Errorf("%s: %d %s", path, status, text)
				}
			}
			status, text := ask("unknown.example", entityPath+"SendCommand", "application/json", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1}}`)
			if want := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[passHost]; status != want {
				t.Errorf("by another name: %d %s", status, text)
			}
			for _, path := range []string{"/livez", "/readyz"} {
				if res, err := proxy.Client().Get(proxy.URL + path); err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("%s: %v, %v", path, res, err)
				}
			}
			seen := map[string]int{}
			entities := entityv1connect.NewEntityServiceClient(&http.Client{Transport: named{proxy.Client().Transport, "lb.example"}}, proxy.URL, connect.WithProtoJSON())
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			stream, err := entities.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: "counter"}))
			if err != nil {
				t.Fatal(err)
			}
			for stream.Receive() {
				if stream.Msg().GetSequence() > 0 {
					seen[stream.Msg().GetEntityId()]++
				}
			}
			if err := stream.Err(); err != nil || seen["smuggled"] != 0 {
				t.Errorf("a subscriber saw %v, %v", seen, err)
			}
			for caller := range callers {
				if n := seen[fmt.Sprint("caller-", caller)]; n != each {
					t.Errorf("a subscriber saw %d events of caller %d, want %d", n, caller, each)
				}
			}
		})
	}
}

// named is a transport that sets the host of requests.
type named struct {
	http.RoundTripper
	host string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = n.host
	return n.RoundTripper.RoundTrip(r)
}

// TestProxyConnectionsAreKeptOpen checks that a proxy keeps its connection after valid
// HTTP/1.1 requests, whether they succeed or are rejected.
func TestProxyConnectionsAreKeptOpen(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	node.Push("counter")
	conn := dial(t, node)
	answers := bufio.NewReader(conn)
	for i, c := range []struct {
		body string
		want int
	}{
		{`{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1}}`, 200},
		{`{"entityType":"counter","entityId":"a","command":"nothing","json":{"amount":1}}`, 404},
		{`{"entityType":"nothing","entityId":"a","command":"add","json":{"amount":1}}`, 404},
		{`no JSON`, 400},
		{`{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1}}`, 200},
	} {
		fmt.Fprintf(conn, "POST %sSend HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.7, 192.0.2.8\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", entityPath, len(c.body), c.body)
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		text, err := io.ReadAll(res.Body)
		if err != nil || res.Close || res.StatusCode != c.want {
			t.Errorf("request %d: %d %s, closes: %v, %v", i, res.StatusCode, text, res.Close, err)
		}
	}
}
