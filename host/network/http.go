package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ErrNotConnected is wrapped by the error of a call for which no connection
// could be made. Nothing of the call was sent.
var ErrNotConnected = errors.New("not connected")

// PeerAddressHeader is in the 404 answers of a listener that serves only
// clients. It contains the host:port at which the node serves calls of other
// nodes.
const PeerAddressHeader = "Hostd-Peer-Address"

// NodesAloneHeader is in calls between nodes that a listener for clients must
// not answer, even if it also serves nodes.
const NodesAloneHeader = "Hostd-Nodes-Alone"

// HTTPOptions tune a client. If a field is zero, its default is used.
type HTTPOptions struct {
	// HTTP1 uses HTTP/1.1, for a connection with a single long call, instead of
	// HTTP/2, which carries concurrent calls.
	HTTP1 bool
	// DialTimeout bounds a dial (2 s).
	DialTimeout time.Duration
	// Idle is how long an HTTP/2 connection may receive nothing before it is
	// pinged (1 s). PingTimeout is the time limit of the answer (2 s). A connection whose
	// ping fails is closed with all its calls. Nothing else would end calls to
	// a stopped process, because its kernel accepts and keeps connections.
	Idle        time.Duration
	PingTimeout time.Duration
	// ContinueTimeout is how long an HTTP/1.1 call with the header Expect waits
	// for 100 Continue or an answer before it sends its body; if 0, it does not
	// wait.
	ContinueTimeout time.Duration
	// Dialed, if set, is called with every connection before it is used and may
	// replace it.
	Dialed func(net.Conn) net.Conn
}

// NewHTTPTransport returns a transport that speaks HTTP to other nodes over a
// network, which adds encryption if necessary. The caller closes its idle connections.
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
	protocols.SetHTTP1(o.HTTP1)
	protocols.SetUnencryptedHTTP2(!o.HTTP1)
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

		ExpectContinueTimeout: o.ContinueTimeout,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4<<20 - 1,
			SendPingTimeout:               o.Idle,
			PingTimeout:                   o.PingTimeout,
			WriteByteTimeout:              o.Idle + o.PingTimeout,
		},
	}
}
