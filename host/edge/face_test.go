package edge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// TestPeerListenerServesOnlyInternalCalls: the peer listener serves only the internal services, on
// connections that clients cannot use up. The client listener serves them
// too, until the peer listener's address is known. Then it answers internal
// calls with that address, and connections that were used for internal
// services are closed.
func TestPeerListenerServesOnlyInternalCalls(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	var at atomic.Pointer[string]
	at.Store(new(string))
	internal := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "for nodes") })
	server := services.NewServer(w.Services(), edge.Options{
		NodeID: "n1", MaxConns: 2, MaxAddressConns: 2, Node: served{at: &at},
		Internal: map[string]http.Handler{"/hostd.peer.v1.PeerService/": internal, leaderproxy.Path: internal},
	})
	ended := make(chan error, 2)
	var urls []string
	for _, serve := range []func(net.Listener) error{server.Serve, server.ServePeers} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, l.Addr().String())
		go func() { ended <- serve(l) }()
	}
	clients, peers := urls[0], urls[1]
	get := func(at, path string) (int, string) {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true}
		res, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("http://" + at + path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defer res.Body.Close()
		return res.StatusCode, res.Header.Get(network.PeerAddressHeader)
	}
	between := []string{"/hostd.peer.v1.PeerService/Probe", "/hostd.peer.v1.PeerService/x", leaderproxy.Path + "x"}
	for _, path := range between {
		for _, where := range urls {
			if status, refers := get(where, path); status != http.StatusOK || refers != "" {
				t.Errorf("%s together: %d, refers to %q", path, status, refers)
			}
		}
	}
	for _, where := range urls {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+where+between[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(network.NodesAloneHeader, "1")
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if (res.StatusCode == http.StatusOK) != (where == peers) || res.Header.Get(network.PeerAddressHeader) != "" {
			t.Errorf("%s, asked as a listener for nodes alone: %d", where, res.StatusCode)
		}
	}
	conn, err := net.Dial("tcp", clients)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The deadline is well before the server closes idle connections.
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "GET "+between[0]+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	answer := make([]byte, 1<<10)
	if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "200 OK") {
		t.Fatalf("a node on the clients' listener: %q, %v", answer[:n], err)
	}
	at.Store(&peers)
	server.Part()
	for err == nil { // the rest of the response
		_, err = conn.Read(answer)
	}
	if err != io.EOF {
		t.Errorf("a connection that a node has used: %v", err)
	}
	for _, path := range between {
		if status, refers := get(clients, path); status != http.StatusNotFound || refers != peers {
			t.Errorf("%s on the clients' listener: %d, refers to %q", path, status, refers)
		}
		if status, refers := get(peers, path); status != http.StatusOK || refers != "" {
			t.Errorf("%s on the peers' listener: %d, refers to %q", path, status, refers)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/", entityPath + "SendCommand", "/hostd.peer.v1.ForwardService/Forward"} {
		if status, _ := get(peers, path); status != http.StatusNotFound {
			t.Errorf("%s on the peers' listener: %d", path, status)
		}
	}
	// The connections of clients are used up.
	refused := func() bool {
		conn, err := net.Dial("tcp", clients)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "POST "+entityPath+"Send HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, _ := conn.Read(answer)
		return strings.Contains(string(answer[:n]), "503")
	}
	eventually(t, "clients to be refused", refused)
	for range 40 { // more than the reserve of an address
		conn, err := net.Dial("tcp", peers)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "GET "+between[0]+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "200 OK") {
			t.Fatalf("a node on its own listener: %q, %v", answer[:n], err)
		}
	}
	server.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for range urls {
		<-ended
	}
}
