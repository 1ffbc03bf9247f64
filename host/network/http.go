package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ErrNotConnected is wrapped by the error of a call for which no connection was
// made: nothing of it was sent.
var ErrNotConnected = errors.New("not connected")

// PeerAddressHeader is where a listener that is for clients alone says, with a
// 404, at which host:port its node takes calls of other nodes.
const PeerAddressHeader = "Hostd-Peer-Address"

// NodesAloneHeader is in a call between nodes that a listener for clients is
// not to answer, even while it serves nodes too.
const NodesAloneHeader = "Hostd-Nodes-Alone"

// HTTPOptions tune a client. The zero value of a field means its default.
type HTTPOptions struct {
	// DialTimeout bounds a dial (2 s).
	DialTimeout time.Duration
	// Idle is how long a connection may bring nothing before it is pinged
	// (1 s), PingTimeout how long the answer may take (2 s). A connection that
	// fails is closed with all its calls: a stopped process accepts and keeps
	// connections, so nothing else would end them.
	Idle        time.Duration
	PingTimeout time.Duration
	// Dialed, where set, sees every connection before it is used and may
	// replace it.
	Dialed func(net.Conn) net.Conn
}

// NewHTTPTransport returns a transport that speaks unencrypted HTTP/2 to other
// nodes over a network. The caller closes its idle connections.
func NewHTTPTransport(n Network, o HTTPOptions) *http.Transport {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.DialTimeout, 2 * time.Second}, {&o.Idle, time.Second}, {&o.PingTimeout, 2 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
			defer cancel()
			conn, err := n.Dial(ctx, address)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
			}
			if o.Dialed != nil {
				conn = o.Dialed(conn)
			}
			return conn, nil
		},
		DisableCompression: true,
		IdleConnTimeout:    time.Minute,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4<<20 - 1,
			SendPingTimeout:               o.Idle,
			PingTimeout:                   o.PingTimeout,
			WriteByteTimeout:              o.Idle + o.PingTimeout,
		},
	}
}
