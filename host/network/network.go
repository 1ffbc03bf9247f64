// Package network is the only place where a node listens and dials: TCP for a
// running node, and an in-memory network in tests of whole clusters. It
// separates a listener's gossip connections from its HTTP connections and makes
// the HTTP clients for calls between nodes.
//
// It looks only at the first bytes of a connection and never retries. The
// listeners of Split own the goroutines that classify connections; closing
// both listeners joins these goroutines.
package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Network makes listeners and connections. Addresses are host:port. It is safe
// for concurrent use.
type Network interface {
	// Listen listens on an address. Port 0 means any free port.
	Listen(address string) (net.Listener, error)
	// Dial connects before ctx ends, or fails. The caller owns the connection.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// keepAlive is the TCP keep-alive period. It finds connections to machines that
// vanished. If that must be noticed sooner, pings of the protocols above do it.
const keepAlive = 15 * time.Second

// TCP is the machine's network. If Local is set, connections are dialed from
// that address, so that on machines with several addresses the other side
// can recognize the caller by this address.
type TCP struct{ Local netip.Addr }

// Listen implements Network.
func (TCP) Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: keepAlive}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// Dial implements Network.
func (t TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: keepAlive}
	if t.Local.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.Local, 0))
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return conn, nil
}
