package admission

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
)

// remoteConn is a connection from an address of the test's choice.
type remoteConn struct {
	net.Conn
	remote net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.remote }

// TestAddressUsesHalfOfTheWaitingBytes: whatever one client does, other clients
// have half of the budget. The bytes of an address count until they are given
// back, even if all its connections have been closed in the meantime.
func TestAddressUsesHalfOfTheWaitingBytes(t *testing.T) {
	const limit = 1000
	conns, waiting := NewConnections(8, 8), NewWaiting(limit)
	connect := func(address string) (Share, net.Conn) {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		ip := net.ParseIP(address)
		c, _ := conns.admit(remoteConn{near, &net.TCPAddr{IP: ip, Port: 1000}}, time.Now())
		if c == nil {
			t.Fatalf("the connection from %s was not admitted", address)
		}
		return waiting.Of(conns.ConnContext(context.Background(), c)), c
	}
	rejected := func(s Share, n, limit int64) {
		t.Helper()
		var full *WaitingBytesError
		if err := s.Take(n); !errors.As(err, &full) || full.Limit != limit || !errors.Is(err, request.ErrOverloaded) {
			t.Errorf("%d more bytes: %v, want a rejection at %d bytes", n, err, limit)
		}
	}
	one, conn := connect("2001:db8::1")
	if err := one.Take(limit / 2); err != nil {
		t.Fatal(err)
	}
	rejected(one, 1, limit/2)
	same, conn2 := connect("2001:db8::2") // of the same network
	rejected(same, 1, limit/2)
	conn.Close()
	conn2.Close()
	again, conn3 := connect("2001:db8::3")
	rejected(again, 1, limit/2)
	conn3.Close()

	other, conn4 := connect("192.0.2.1")
	if err := other.Take(limit / 2); err != nil {
		t.Errorf("another address: %v", err)
	}
	rejected(waiting.Of(context.Background()), 1, limit) // a call of another node
	other.Give(limit / 2)
	if err := waiting.Of(context.Background()).Take(limit / 2); err != nil {
		t.Errorf("a call of another node: %v", err)
	}
	waiting.Of(context.Background()).Give(limit / 2)
	conn4.Close()
	one.Give(limit / 2)
	if n := waiting.UsedBytes(); n != 0 || len(conns.by) != 0 {
		t.Errorf("in the end %d bytes are used and %d addresses are kept", n, len(conns.by))
	}
}
