// Package network is the one place where a node listens and dials: TCP for a
// running node; tests put whole clusters on one in memory. It tells the
// gossip connections of a listener from its HTTP connections and makes the
// HTTP clients with which nodes speak to each other.
//
// It never looks at what a connection carries beyond its first bytes and never
// retries. The listeners of Split own the goroutines that tell connections
// apart; closing both joins them.
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
	// Listen listens on an address; port 0 is any free one.
	Listen(address string) (net.Listener, error)
	// Dial connects before ctx ends, or fails. The connection is the caller's.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// keepAlive finds connections whose other machine is gone without a word; what
// must be noticed sooner is noticed by pings of the protocols above.
const keepAlive = 15 * time.Second

// TCP is the network of the machine. Connections are dialed from Local where
// it is set, so that others can tell by the address who calls, on machines
// with several.
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
