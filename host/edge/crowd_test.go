package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hostd/hostd/host/edge"
)

// caller calls a site over its own connections from one address.
type caller struct {
	t    *testing.T
	site *site
	http *http.Client
}

func (s *site) callerFrom(t *testing.T, ip string) *caller {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, s, &http.Client{Transport: transport, Timeout: time.Minute}}
}

// get returns the status of the response, or 0 if there is no response.
func (c *caller) get(path string) int {
	res, err := c.http.Get(c.site.url + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func (c *caller) sends() int {
	res, err := c.http.Post(c.site.url+entityPath+"SendCommand", "application/json", strings.NewReader(`{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1}}`))
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// stream opens a connection with a stream that continues until end is called.
func (c *caller) stream() (end func()) {
	c.t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{DialContext: c.http.Transport.(*http.Transport).DialContext, Protocols: protocols}
	c.t.Cleanup(transport.CloseIdleConnections)
	own := *c.site
	own.h2 = &http.Client{Transport: transport}
	stream := own.entities().SendCommandStream(c.t.Context())
	stream.Send(message(1, add("a", 1)))
	collect(c.t, stream, 1)
	return sync.OnceFunc(func() {
		stream.CloseRequest()
		collect(c.t, stream, 0)
		transport.CloseIdleConnections()
	})
}

// occupy opens a connection whose request continues until end is called.
func (c *caller) occupy() (end func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	body, open := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.site.url+entityPath+"SendCommand", body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := c.http.Do(r); err == nil {
			res.Body.Close()
		}
	}()
	open.Write([]byte(`{`))
	end = func() { cancel(); open.Close(); <-done }
	c.t.Cleanup(end)
	return end
}

// TestIdleConnectionsMakeRoom: idle connections do not keep out new
// connections, whether these come from the same address or from a different
// one.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	s := serve(t, edge.Options{MaxConns: 12, MaxAddressConns: 8})
	for i := range 40 {
		if status := s.callerFrom(t, "127.0.0.1").get("/livez"); status != http.StatusOK {
			t.Errorf("connection %d of an address: %d", i, status)
		}
	}
	for i := range 40 {
		if status := s.callerFrom(t, fmt.Sprintf("127.0.0.%d", 2+i)).sends(); status != http.StatusOK {
			t.Errorf("address %d: %d", i, status)
		}
	}
	// Idle connections make room for requests that continue.
	occupied := s.callerFrom(t, "127.0.0.1")
	for range 7 {
		defer occupied.stream()()
	}
	if status := occupied.sends(); status != http.StatusOK {
		t.Errorf("the eighth connection: %d", status)
	}
}

// TestOneAddressCannotUseAllConnections: when an address has reached its limit, other
// addresses are served, and the address itself gets only health probes answered.
func TestOneAddressCannotUseAllConnections(t *testing.T) {
	s := serve(t, edge.Options{MaxConns: 12, MaxAddressConns: 8, Internal: map[string]http.Handler{"/between/": http.NotFoundHandler()}})
	crowd := s.callerFrom(t, "127.0.0.1")
	var occupied []func()
	for range 8 {
		occupied = append(occupied, crowd.stream())
	}
	wait := func(what string, ok func() bool) { t.Helper(); eventually(t, what, ok) }
	more := s.callerFrom(t, "127.0.0.1")
	wait("the ninth connection to be refused", func() bool { return more.sends() == http.StatusServiceUnavailable })
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/between/x": 404, "/metrics": 503} {
		if status := more.get(path); status != want {
			t.Errorf("%s on a connection of the reserve: %d", path, status)
		}
	}
	if status := s.callerFrom(t, "127.0.0.2").sends(); status != http.StatusOK {
		t.Errorf("another address: %d", status)
	}
	for range 64 { // more than the reserve
		more.occupy()
	}
	wait("another address to be served still", func() bool { return s.callerFrom(t, "127.0.0.3").sends() == http.StatusOK })
	for _, end := range occupied {
		end()
	}
	wait("the address to be served again", func() bool { return s.callerFrom(t, "127.0.0.1").sends() == http.StatusOK })
}

// TestInternalCallsHoldNoReserveConnection: if there is a separate listener
// for nodes, a request to an internal path does not keep its reserve
// connection of the client listener open, so that probes can have that
// connection. If there is none, the connection stays open, because other
// nodes use the client listener.
func TestInternalCallsHoldNoReserveConnection(t *testing.T) {
	for _, at := range []string{"127.0.0.1:7", ""} {
		var referral atomic.Pointer[string]
		referral.Store(&at)
		between := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "for nodes") })
		s := serve(t, edge.Options{MaxConns: 8, MaxAddressConns: 8, Node: served{at: &referral}, Internal: map[string]http.Handler{"/between/": between}})
		crowd := s.callerFrom(t, "127.0.0.1")
		for range 8 {
			defer crowd.stream()()
		}
		eventually(t, "others to be refused", func() bool { return s.callerFrom(t, "127.0.0.3").sends() == http.StatusServiceUnavailable })
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
		ask := func(conn net.Conn, rest string) string {
			io.WriteString(conn, "GET /between/x HTTP/1.1\r\nHost: 127.0.0.1\r\n"+rest)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return err.Error()
			}
			text, _ := io.ReadAll(res.Body)
			return strings.TrimSpace(string(text))
		}
		kept := 0
		for i := range 40 { // more than the reserve of an address
			conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			if at == "" && i == 32 {
				if said := ask(conn, "\r\n"); said == "for nodes" {
					t.Error("an address has a place more than it may")
				}
				break
			}
			want, rest := "for nodes", "\r\n"
			if at != "" {
				want = "404 page not found"
			}
			if at != "" && i%2 == 1 { // the server must not wait for a body that does not come
				rest = "Content-Length: 9\r\n\r\n"
			}
			if said := ask(conn, rest); said != want {
				t.Fatalf("connection %d, nodes at %q: %q", i, at, said)
			}
			if at == "" {
				if said := ask(conn, "\r\n"); said != "for nodes" {
					t.Fatalf("connection %d, again: %q", i, said)
				}
				kept++
			} else if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Fatalf("connection %d stays: %d bytes, %v", i, n, err)
			}
		}
		if status := s.callerFrom(t, "127.0.0.2").get("/livez"); (status == http.StatusOK) != (at != "") {
			t.Errorf("nodes at %q: a probe: %d, with %d connections kept", at, status, kept)
		}
	}
}

// TestOneAddressCannotUseAllStreams: when one address has as many streams as
// it may have, other addresses can still open streams.
func TestOneAddressCannotUseAllStreams(t *testing.T) {
	s := serve(t, edge.Options{MaxStreams: 4, MaxAddressStreams: 3})
	var open []*sendStream
	for range 3 {
		stream := s.entities().SendCommandStream(t.Context())
		stream.Send(message(1, add("a", 1)))
		collect(t, stream, 1)
		open = append(open, stream)
	}
	over := s.entities().SendCommandStream(t.Context())
	over.Send(message(1, add("a", 1)))
	if _, err := over.Receive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the fourth stream of an address: %v", err)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{DialContext: dialer.DialContext, Protocols: protocols}
	defer transport.CloseIdleConnections()
	other := *s
	other.h2 = &http.Client{Transport: transport}
	stream := other.entities().SendCommandStream(t.Context())
	stream.Send(message(1, add("a", 1)))
	collect(t, stream, 1)
	for _, o := range append(open, stream) {
		o.CloseRequest()
		collect(t, o, 0)
	}
}

// TestResetsEndAConnection: a client that resets streams continually loses its
// connection; a client that cancels a few calls keeps it.
func TestResetsEndAConnection(t *testing.T) {
	s := serve(t, edge.Options{})
	resets := func(n int) (lost bool) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn)
		framer.WriteSettings()
		var head bytes.Buffer
		encoder := hpack.NewEncoder(&head)
		for i := range n {
			head.Reset()
			for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "127.0.0.1"}, {":path", entityPath + "SendCommand"}, {"content-type", "application/json"}} {
				encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
			}
			id := uint32(2*i + 1)
			framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true})
			if err := framer.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				return true
			}
			if i%50 != 49 {
				continue
			}
			framer.WritePing(false, [8]byte{})
			for answered := false; !answered; {
				frame, err := framer.ReadFrame()
				if err != nil {
					return true
				}
				switch f := frame.(type) {
				case *http2.SettingsFrame:
					if !f.IsAck() {
						framer.WriteSettingsAck()
					}
				case *http2.PingFrame:
					answered = f.IsAck()
				case *http2.GoAwayFrame:
					return true
				}
			}
		}
		return false
	}
	if resets(500) {
		t.Error("500 resets end a connection")
	}
	if !resets(200_000) {
		t.Error("200,000 resets do not end a connection")
	}
	if status, body := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1}}`); status != http.StatusOK {
		t.Errorf("a neighbour: %d %s", status, body)
	}
}

// TestConcurrentCallsAreSharedByAddress: calls that wait for the rest of their message take
// memory, and a connection can have 250 of them. One address may have half
// of the allowed calls. Its further calls are rejected while other addresses
// and probes are served, and calls that end make room.
func TestConcurrentCallsAreSharedByAddress(t *testing.T) {
	s := serve(t, edge.Options{MaxConns: 12, MaxAddressConns: 8})
	const share = 512 // the minimum for an address
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var transports []*http.Transport
	waiting := make(chan int, share)
	open := func(from string, n int) {
		for i := range n {
			if i%200 == 0 {
				protocols := new(http.Protocols)
				protocols.SetUnencryptedHTTP2(true)
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				transports = append(transports, &http.Transport{Protocols: protocols, DialContext: dialer.DialContext})
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/livez", nil)
				if res, err := transports[len(transports)-1].RoundTrip(r); err != nil { // opens the connection
					t.Fatal(err)
				} else {
					res.Body.Close()
				}
			}
			transport := transports[len(transports)-1]
			go func() {
				body, _ := io.Pipe() // never sends a byte
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+entityPath+"SendCommand", body)
				r.Header.Set("Content-Type", "application/json")
				res, err := transport.RoundTrip(r)
				if err != nil {
					waiting <- 0 // the test has ended
					return
				}
				res.Body.Close()
				waiting <- res.StatusCode
			}()
		}
	}
	open("127.0.0.1", share)
	one, other := s.callerFrom(t, "127.0.0.1"), s.callerFrom(t, "127.0.0.2")
	until := func(status int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); one.sends() != status; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("a call is never answered with %d", status)
			}
		}
	}
	until(http.StatusTooManyRequests) // after all have arrived
	if status := one.get("/readyz"); status != http.StatusOK {
		t.Errorf("a probe: %d", status)
	}
	if status := other.sends(); status != http.StatusOK {
		t.Errorf("another address: %d", status)
	}
	select {
	case status := <-waiting:
		t.Errorf("one of the first %d: %d", share, status)
	default:
	}
	cancel()
	for range share {
		<-waiting
	}
	until(http.StatusOK)
	for _, transport := range transports {
		transport.CloseIdleConnections()
	}
}
