package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership/seeds"
)

// tcpPort is the gossip half of a port that serves nothing else.
type tcpPort struct{ net.Listener }

func (tcpPort) Dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func newTestTransport(t *testing.T) (*transport, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := l.Addr().(*net.TCPAddr)
	tr := newTransport(tcpPort{l}, slog.New(slog.DiscardHandler), a.IP, a.Port, true)
	t.Cleanup(func() {
		if err := tr.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return tr, l.Addr().String()
}

func receivePacket(t *testing.T, tr *transport) *memberlist.Packet {
	t.Helper()
	select {
	case p := <-tr.PacketCh():
		return p
	case <-time.After(20 * time.Second):
		t.Fatal("no packet came")
		return nil
	}
}

func TestPacketsAndStreams(t *testing.T) {
	a, addressA := newTestTransport(t)
	b, addressB := newTestTransport(t)
	if ip, port, err := a.FinalAdvertiseAddr("", 0); err != nil || net.JoinHostPort(ip.String(), fmt.Sprint(port)) != addressA {
		t.Errorf("advertised %v:%d, %v", ip, port, err)
	}
	packet := []byte("first")
	if _, err := a.WriteToAddress(packet, memberlist.Address{Addr: addressB, Name: "b"}); err != nil {
		t.Fatal(err)
	}
	copy(packet, "XXXXX") // the caller may reuse the buffer
	if p := receivePacket(t, b); string(p.Buf) != "first" || p.From.String() != addressA {
		t.Errorf("%q from %v", p.Buf, p.From)
	}
	for i := range maxQueued / 2 {
		a.WriteTo(fmt.Append(nil, i), addressB)
	}
	for i := range maxQueued / 2 {
		if p := receivePacket(t, b); string(p.Buf) != fmt.Sprint(i) {
			t.Errorf("packet %d is %q", i, p.Buf)
		}
	}
	large := bytes.Repeat([]byte("x"), maxPacketBytes)
	a.WriteTo(large, addressB)
	if p := receivePacket(t, b); !bytes.Equal(p.Buf, large) {
		t.Errorf("%d bytes", len(p.Buf))
	}
	if _, err := a.WriteTo(append(large, 'x'), addressB); err == nil {
		t.Error("a packet that is too large was taken")
	}

	conn, err := a.DialAddressTimeout(memberlist.Address{Addr: addressB}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "\x00stream") // a ping
	far := <-b.StreamCh()
	got := make([]byte, 7)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "\x00stream" {
		t.Errorf("%q, %v", got, err)
	}
	// Shutdown closes the connections that memberlist has not closed.
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(got); err == nil {
		t.Error("a stream outlives the transport")
	}
	if _, err := b.DialTimeout(addressA, time.Second); err == nil {
		t.Error("a transport that is shut down dials")
	}
	conn.Close()
	if len(a.conns)+len(b.conns) > 1 { // the packets of a
		t.Errorf("%d and %d connections are left", len(a.conns), len(b.conns))
	}
}

// A packet that cannot be sent is dropped; WriteTo neither fails nor blocks.
func TestPacketsToUnreachableNodeAreDropped(t *testing.T) {
	a, _ := newTestTransport(t)
	gone, address := newTestTransport(t)
	gone.Shutdown()
	for range 10 * maxQueued {
		if _, err := a.WriteTo([]byte("x"), address); err != nil {
			t.Fatal(err)
		}
	}
}

// Connections that are not gossip are closed and do no harm.
func TestMalformedConnectionsAreClosed(t *testing.T) {
	a, address := newTestTransport(t)
	b, _ := newTestTransport(t)
	for _, bytes := range []string{
		"x", "p", "p\x00\x05", "p\x00\x00", "p\x00\x03abc", "p\x00\x09nonsense!", "p\x00\x0b127.0.0.1:0",
		"p\x00\x0b127.0.0.1:1\xff\xffshort",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, bytes)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		var timeout net.Error
		if _, err := conn.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%q: the connection stays open", bytes)
		}
		conn.Close()
	}
	b.WriteTo([]byte("sound"), address)
	if p := receivePacket(t, a); string(p.Buf) != "sound" {
		t.Errorf("%q", p.Buf)
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	good := func() Options {
		return Options{Node: "n", Incarnation: 1, Address: "127.0.0.1:1", Transport: tcpPort{}, Seeds: []string{"seed.test:1"}}
	}
	if err := good().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(o *Options){
		"node id":     func(o *Options) { o.Node = "" },
		"incarnation": func(o *Options) { o.Incarnation = 0 },
		"address":     func(o *Options) { o.Address = "127.0.0.1" },
		"at most 128": func(o *Options) { o.Address = strings.Repeat("a", 130) + ":1" },
		"seed":        func(o *Options) { o.Seeds = []string{"seed.test"} },
		"key":         func(o *Options) { o.Key = make([]byte, 17) },
		"label":       func(o *Options) { o.Label = strings.Repeat("l", maxLabelBytes+1) },
		"cluster id":  func(o *Options) { o.Cluster = strings.Repeat("c", maxIDBytes+1) },
		"disk":        func(o *Options) { o.Disk = strings.Repeat("d", maxIDBytes+1) },
		"transport":   func(o *Options) { o.Transport = nil },
		"duration":    func(o *Options) { o.Rejoin = -1 },
	} {
		o := good()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{0, 16, 24, 32} {
		o := good()
		if o.Key = make([]byte, n); o.Validate() != nil {
			t.Errorf("a key of %d bytes: %v", n, o.Validate())
		}
	}
}

// A node whose advertised name has no address yet waits until the name has an
// address, or until its start is canceled.
func TestStartWaitsForTheAdvertisedName(t *testing.T) {
	for _, known := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lookups := 0
		m, err := Start(ctx, Options{
			Node: "n", Incarnation: 1, Address: net.JoinHostPort("node.test", port), Transport: tcpPort{l},
			Lookup: seeds.Lookup{Host: func(_ context.Context, host string) ([]string, error) {
				if lookups++; lookups > 1 && !known {
					cancel()
				}
				if lookups < 3 || !known || host != "node.test" {
					return nil, errors.New("no such host")
				}
				return []string{"127.0.0.1"}, nil
			}},
		})
		if (err == nil) != known || lookups < 2 {
			t.Errorf("known %v: %v after %d lookups", known, err, lookups)
		}
		if err != nil {
			l.Close()
			continue
		}
		if m.self != l.Addr().String() {
			t.Errorf("others gossip to %s", m.self)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := m.Leave(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("leave after close: %v", err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("a second close: %v", err)
		}
	}
}

// namedPort is a port that knows the addresses of host names, and records the
// addresses that are dialed.
type namedPort struct {
	tcpPort
	names  map[string]string
	dialed chan string
}

func (p namedPort) Dial(ctx context.Context, address string) (net.Conn, error) {
	if at, ok := p.names[address]; ok {
		select {
		case p.dialed <- address:
		default:
		}
		address = at
	}
	return p.tcpPort.Dial(ctx, address)
}

// A node may announce a wrong IP address, because its name server still
// returned its predecessor's address. Other nodes reach it by the name that it
// announces.
func TestNamedNodesAreReachedByTheirNames(t *testing.T) {
	names, dialed := map[string]string{}, make(chan string, 1)
	var at []string
	var ports []net.Listener
	for i := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		names[net.JoinHostPort(fmt.Sprintf("n%d.test", i), port)] = l.Addr().String()
		at, ports = append(at, l.Addr().String()), append(ports, l)
	}
	for i, l := range ports {
		_, port, _ := net.SplitHostPort(at[i])
		m, err := Start(t.Context(), Options{
			Node: sharding.NodeID(fmt.Sprintf("n%d", i)), Incarnation: 1, Address: net.JoinHostPort(fmt.Sprintf("n%d.test", i), port),
			Transport: namedPort{tcpPort{l}, names, dialed}, Seeds: []string{at[1-i]},
			Lookup: seeds.Lookup{Host: func(context.Context, string) ([]string, error) { return []string{"127.0.0.99"}, nil }},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close(t.Context())
	}
	select {
	case <-dialed:
	case <-time.After(20 * time.Second):
		t.Error("no node was dialed by its name")
	}
}

// A name that a name server does not answer does not delay other names: all are
// resolved concurrently.
func TestNamesAreResolvedConcurrently(t *testing.T) {
	names := []string{"s1.test:7", "s2.test:7", "unknown.test:7", "s3.test:7"}
	var mu sync.Mutex
	asked, all := 0, make(chan struct{})
	m := &Membership{opts: Options{Logger: slog.New(slog.DiscardHandler), Lookup: seeds.Lookup{Host: func(ctx context.Context, host string) ([]string, error) {
		mu.Lock()
		if asked++; asked == len(names) {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if host == "unknown.test" {
			return nil, errors.New("no such host")
		}
		return []string{"127.0.0." + host[1:2]}, nil
	}}}}
	if got := m.resolve(t.Context(), names); !slices.Equal(got, []string{"127.0.0.1:7", "127.0.0.2:7", "127.0.0.3:7"}) {
		t.Errorf("resolved %v", got)
	}
}
