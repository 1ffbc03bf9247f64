package network_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/memnet"
)

// port is a split listener. Behind each half is an echo server that first sends
// the name of its half.
type port struct {
	http, gossip net.Listener
	addr         string
	ended        chan error
}

func open(t testing.TB, n network.Network, address string) *port {
	t.Helper()
	l, err := n.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &port{addr: l.Addr().String(), ended: make(chan error, 2)}
	p.http, p.gossip = network.Split(l)
	serve := func(l net.Listener, name string) {
		for {
			conn, err := l.Accept()
			if err != nil {
				p.ended <- err
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, name+"\n")
				io.Copy(conn, conn)
			}()
		}
	}
	go serve(p.http, "http")
	go serve(p.gossip, "gossip")
	return p
}

func (p *port) close(t testing.TB) {
	t.Helper()
	for _, l := range []net.Listener{p.http, p.gossip} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := <-p.ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

// ask writes pieces one by one and returns the name of the half and the echo.
func ask(t testing.TB, n network.Network, address string, pieces ...string) (half, echo string) {
	t.Helper()
	conn, err := n.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := io.WriteString(conn, p); err != nil {
			return "", ""
		}
	}
	if half, err := conn.(interface{ CloseWrite() error }); err {
		half.CloseWrite()
	}
	r := bufio.NewReader(conn)
	name, err := r.ReadString('\n')
	if err != nil {
		return "", ""
	}
	want := strings.TrimPrefix(strings.Join(pieces, ""), network.GossipPreface)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(name), string(got)
}

func TestSplit(t *testing.T) {
	networks := map[string]func() (network.Network, string){
		"tcp": func() (network.Network, string) { return network.TCP{}, "127.0.0.1:0" },
		"mem": func() (network.Network, string) { return memnet.New().Host("a"), ":0" },
	}
	for name, make := range networks {
		t.Run(name, func(t *testing.T) {
			n, address := make()
			p := open(t, n, address)
			defer p.close(t)
			for _, c := range []struct {
				pieces []string
				half   string
				echo   string
			}{
				{[]string{"GET / HTTP/1.1\r\n\r\n"}, "http", "GET / HTTP/1.1\r\n\r\n"},
				{[]string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, "http", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
				{[]string{"G", "E", "T /"}, "http", "GET /"},
				{[]string{"hostdgs\x02gossip of another version"}, "http", "hostdgs\x02gossip of another version"},
				{[]string{"host", "dhttp"}, "http", "hostdhttp"},
				{[]string{network.GossipPreface + "hello"}, "gossip", "hello"},
				{[]string{"hos", "tdgs", "\x01", "hello"}, "gossip", "hello"},
				{[]string{network.GossipPreface, "a", "b"}, "gossip", "ab"},
				{[]string{"\x16\x03\x01\x02\x00"}, "http", "\x16\x03\x01\x02\x00"},
			} {
				if half, echo := ask(t, n, p.addr, c.pieces...); half != c.half || echo != c.echo {
					t.Errorf("%q went to %q as %q, wanted %q as %q", c.pieces, half, echo, c.half, c.echo)
				}
			}
			conn, err := network.DialGossip(t.Context(), n, p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if name, _ := bufio.NewReader(conn).ReadString('\n'); name != "gossip\n" {
				t.Errorf("a dialed gossip connection went to %q", name)
			}
		})
	}
}

// A connection that sends nothing is closed after a timeout, and many of them
// do not keep others out.
func TestSilentConnections(t *testing.T) {
	const most = 4096
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		a, b := n.Host("a"), n.Host("b")
		p := open(t, a, ":1")
		var silent []net.Conn
		for range most + 44 {
			conn, err := b.Dial(t.Context(), p.addr)
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, conn)
			synctest.Wait()
		}
		if half, _ := ask(t, b, p.addr, "GET"); half != "http" {
			t.Errorf("among silent ones, a connection went to %q", half)
		}
		closed := func() (n int) {
			for _, c := range silent {
				c.SetReadDeadline(time.Now().Add(time.Nanosecond))
				if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
					n++
				}
			}
			return n
		}
		if got := closed(); got < 44 || got > 46 {
			t.Errorf("%d silent connections more than may stay, and %d were closed", 44, got)
		}
		time.Sleep(6 * time.Second)
		if got := closed(); got != most+44 {
			t.Errorf("%d silent connections were closed after 6 s", got)
		}
		p.close(t)
	})
}

// A distant client does not lose its connection before its first bytes arrive,
// however many idle connections another address opens meanwhile.
func TestUndecidedConnectionsAreSharedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		a, b, c := n.Host("a"), n.Host("b"), n.Host("c")
		p := open(t, a, ":1")
		far, err := c.Dial(t.Context(), p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		synctest.Wait()
		for range 5000 {
			conn, err := b.Dial(t.Context(), p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			synctest.Wait()
		}
		if _, err := io.WriteString(far, "GET / HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 4)
		far.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(far, said); err != nil || string(said) != "http" {
			t.Errorf("%q, %v", said, err)
		}
		p.close(t)
	})
}

// If one half is closed, the other keeps working. After both halves are closed,
// every connection has ended.
func TestSplitCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		p := open(t, n.Host("a"), ":1")
		b := n.Host("b")
		p.http.Close()
		if half, _ := ask(t, b, p.addr, "GET"); half != "" {
			t.Errorf("a closed half answers as %q", half)
		}
		if half, _ := ask(t, b, p.addr, network.GossipPreface+"x"); half != "gossip" {
			t.Errorf("the open half answers as %q", half)
		}
		conn, err := b.Dial(t.Context(), p.addr) // undecided
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.close(t)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("an undecided connection: %v", err)
		}
		if _, err := b.Dial(t.Context(), p.addr); err == nil {
			t.Error("a closed port accepts")
		}
	})
}

// An error of the listener below reaches both halves.
func TestSplitPassesListenerError(t *testing.T) {
	l, err := network.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	http, gossip := network.Split(l)
	l.Close()
	for _, h := range []net.Listener{http, gossip} {
		if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// With SplitOver, opened connections are classified by their content. A
// connection that cannot be opened is closed. Neither such a connection nor
// one that is still being opened delays other connections.
func TestSplitClassifiesOpenedConnections(t *testing.T) {
	l, err := network.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	http, gossip := network.SplitOver(l, func(conn net.Conn) (net.Conn, error) {
		key := make([]byte, 1)
		if _, err := io.ReadFull(conn, key); err != nil || key[0] != 'k' {
			return nil, errors.Join(err, errors.New("no key"))
		}
		return conn, nil
	})
	defer http.Close()
	defer gossip.Close()
	dial := func(begins string) net.Conn {
		t.Helper()
		conn, err := network.TCP{}.Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		io.WriteString(conn, begins)
		return conn
	}
	dial("") // is being opened
	refused := dial("x")
	refused.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what cannot be opened: %v", err)
	}
	for _, tt := range []struct {
		half        net.Listener
		sent, first string
	}{{http, "kGET /", "GET /"}, {gossip, "k" + network.GossipPreface + "hello", "hello"}} {
		dial(tt.sent)
		conn, err := tt.half.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got := make([]byte, len(tt.first))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.first {
			t.Errorf("%q gives %q, %v", tt.sent, got, err)
		}
	}
}

// HTTP over a split listener works as over any other listener.
func TestHTTPOverSplit(t *testing.T) {
	l, err := network.TCP{}.Listen(loopback.Host() + ":0")
	if err != nil {
		t.Fatal(err)
	}
	httpHalf, gossip := network.Split(l)
	defer gossip.Close()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	})}
	go server.Serve(httpHalf)
	defer server.Shutdown(context.Background())
	h2 := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	defer h2.CloseIdleConnections()
	h1 := &http.Transport{}
	defer h1.CloseIdleConnections()
	for want, transport := range map[string]http.RoundTripper{"HTTP/2.0": h2, "HTTP/1.1": h1} {
		res, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != want || err != nil {
			t.Errorf("%q, %v, wanted %q", body, err, want)
		}
	}
	server.Close()
	gossip.Close()
	h2.CloseIdleConnections()
	if _, err := (&http.Client{Transport: h2}).Get("http://" + l.Addr().String()); !errors.Is(err, network.ErrNotConnected) {
		t.Errorf("a call to a closed port: %v", err)
	}
}

// Gossip accepts from several listeners, one of which may be closed earlier,
// and dials the located address instead of the announced one.
func TestGossipOfTwoListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		a, b := n.Host("a"), n.Host("b")
		var gossip []net.Listener
		for _, address := range []string{":1", ":2"} {
			l, err := a.Listen(address)
			if err != nil {
				t.Fatal(err)
			}
			http, g := network.Split(l)
			defer http.Close()
			gossip = append(gossip, g)
		}
		own := network.NewGossip(a, nil, gossip...)
		reach := func(address string) error {
			other := network.NewGossip(b, func(address string) string { return map[string]string{"old:1": "a:1", "old:2": "a:2"}[address] })
			defer other.Close()
			conn, err := other.Dial(t.Context(), address)
			if err != nil {
				return err
			}
			defer conn.Close()
			accepted := make(chan net.Conn, 1)
			ended := make(chan error, 1)
			go func() {
				_, err := conn.Read(make([]byte, 1)) // until the other side closes it
				ended <- err
			}()
			go func() {
				if in, err := own.Accept(); err == nil {
					accepted <- in
				}
			}()
			select {
			case in := <-accepted:
				in.Close()
				return nil
			case err := <-ended:
				conn, err2 := other.Dial(t.Context(), "old:2") // for the Accept that is waiting
				if err2 != nil {
					t.Error(err2)
					return err
				}
				(<-accepted).Close()
				conn.Close()
				return err
			}
		}
		for _, address := range []string{"old:1", "old:2"} {
			if err := reach(address); err != nil {
				t.Errorf("%s: %v", address, err)
			}
		}
		gossip[0].Close()
		if err := reach("old:1"); !errors.Is(err, io.EOF) {
			t.Errorf("a listener that was closed: %v", err)
		}
		if err := reach("old:2"); err != nil {
			t.Errorf("the other listener: %v", err)
		}
		if err := own.Close(); err != nil {
			t.Error(err)
		}
		if _, err := own.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
	})
}
