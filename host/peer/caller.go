package peer

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding"
)

// caller is the HTTP client side of every call to a node. It sends this node's
// hello, checks which node answers, and records a sign of life of that node.
// Errors of this side are wrapped to distinguish them from errors of the
// other node.
type caller struct {
	base  http.RoundTripper
	peers *Peers
	to    *peer // nil if it is unknown which node will answer
	// follow sends the request to the node's current address, whatever the URL.
	follow bool
	// alone is set for a call to an address at which a node serves only nodes.
	// The call uses a new connection and follows no referral.
	alone bool
	// answered is the hello of the last answer.
	answered atomic.Pointer[Hello]
}

// RoundTrip implements http.RoundTripper.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	c.peers.hello().write(r.Header)
	if _, told := r.Header[principal.Header]; !told {
		if caller := c.peers.opts.Caller(r.Context()); caller != "" {
			r.Header[principal.Header] = []string{caller}
		}
	}
	if c.to != nil {
		r.Header[headerTo] = []string{string(c.to.id)}
	}
	if c.follow {
		address := c.peers.addressOf(c.to.id)
		if address == "" {
			return nil, &localError{fmt.Errorf("%w: the address of node %s is unknown", ErrUnreachable, c.to.id)}
		}
		r.URL.Host, r.Host = address, address
	}
	called := r.URL.Host
	var over atomic.Pointer[net.Conn]
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { over.Store(&i.Conn) }}))
	res, err := c.send(r)
	if err != nil {
		return nil, err
	}
	member, err := c.check(res, over.Load())
	if err != nil {
		res.Body.Close()
		if !c.alone {
			c.peers.referrals.forget(called)
		}
		return nil, &localError{err}
	}
	if member {
		c.to.touch()
		res.Body = &observedBody{ReadCloser: res.Body, peer: c.to}
	}
	return res, nil
}

// send calls the node at the URL's address, or at the address to which the
// node at the URL's address has referred.
func (c *caller) send(r *http.Request) (*http.Response, error) {
	address := r.URL.Host
	at := c.peers.referrals.at(address)
	if c.alone {
		at, r.Close = address, true
		r.Header[network.NodesAloneHeader] = []string{"1"}
	}
	r.URL.Host, r.Host = at, at
	res, err := c.base.RoundTrip(r)
	if err != nil && !c.alone {
		c.peers.referrals.forget(address)
	}
	if errors.Is(err, network.ErrNotConnected) {
		return nil, &localError{fmt.Errorf("%w: %w", ErrUnreachable, err)}
	}
	if err != nil || c.alone || at != address || !c.peers.referrals.take(address, res) {
		return res, err
	}
	// The call had no effect. Send it again if the body can be read again.
	res.Body.Close()
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return nil, &localError{fmt.Errorf("%w: %s is the client address of a node, whose peer address is %s", ErrUnreachable, address, c.peers.referrals.at(address))}
	}
	if r.GetBody != nil {
		if r.Body, err = r.GetBody(); err != nil {
			return nil, &localError{fmt.Errorf("%w: %w", ErrUnreachable, err)}
		}
	}
	return c.send(r)
}

// check checks the node that answered, and reports whether it is the called
// node and in this cluster. An answer without a hello is not from a node but
// from a proxy or an older release. An answer is also rejected if its hello
// names a different node than the connection's certificate.
func (c *caller) check(res *http.Response, over *net.Conn) (member bool, err error) {
	h, err := readHello(res.Header)
	if err == nil && over != nil {
		var node string
		node, h.Proven = network.NodeOf(*over)
		if err := identify(string(h.Node), node, h.Proven); err != nil {
			return false, err
		}
	}
	if err == nil {
		c.answered.Store(&h)
	} else if c.alone && res.StatusCode == http.StatusNotFound {
		return false, fmt.Errorf("%w: no node serves other nodes at this address", ErrUnreachable)
	}
	if err != nil || c.to == nil {
		return false, err
	}
	if h.Node != c.to.id {
		return false, wrongNode(string(c.to.id), h.Node)
	}
	if h.Cluster == "" {
		return false, nil // the other node will reject the call itself
	}
	_, err = c.peers.accept(h)
	return err == nil, err
}

// says checks that an answer that names its node agrees with the certificate of
// the connection.
func (c *caller) says(node string) error {
	h := c.answered.Load()
	if h == nil || node == "" {
		return nil
	}
	return identify(node, string(h.Node), h.Proven)
}

func wrongNode(wanted string, answers sharding.NodeID) error {
	return fmt.Errorf("%w: called node %s, but node %s answered", ErrWrongNode, wanted, answers)
}
