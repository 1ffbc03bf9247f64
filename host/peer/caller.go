package peer

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
)

// caller is the HTTP client's side of every call to a node: it says who calls,
// checks who answers, and notes that the node is heard. It makes an error of
// this side recognizable as such.
type caller struct {
	base  http.RoundTripper
	peers *Peers
	to    *peer // nil where it is not known who answers
	// follow sends the request to where the node listens now, whatever the URL.
	follow bool
}

// RoundTrip implements http.RoundTripper.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	c.peers.hello().write(r.Header)
	if c.to != nil {
		r.Header[headerTo] = []string{string(c.to.id)}
	}
	if c.follow {
		address := c.peers.addressOf(c.to.id)
		if address == "" {
			return nil, &localError{fmt.Errorf("%w: the address of node %s is not known", ErrUnreachable, c.to.id)}
		}
		r.URL.Host, r.Host = address, address
	}
	res, err := c.base.RoundTrip(r)
	if errors.Is(err, network.ErrNotConnected) {
		return nil, &localError{fmt.Errorf("%w: %w", ErrUnreachable, err)}
	}
	if err != nil {
		return nil, err
	}
	member, err := c.check(res)
	if err != nil {
		res.Body.Close()
		return nil, &localError{err}
	}
	if member {
		c.to.touch()
		res.Body = &heardBody{ReadCloser: res.Body, peer: c.to}
	}
	return res, nil
}

// check judges who answered, and reports whether it is the node that was
// called, as a member of this cluster. An answer without a hello is no node's:
// a proxy's, or an older release's.
func (c *caller) check(res *http.Response) (member bool, err error) {
	h, err := readHello(res.Header)
	if err != nil || c.to == nil {
		return false, err
	}
	if h.Node != c.to.id {
		return false, wrongNode(string(c.to.id), h.Node)
	}
	if h.Cluster == "" {
		return false, nil // it refuses by itself
	}
	_, err = c.peers.accept(h)
	return err == nil, err
}

func wrongNode(wanted string, answers sharding.NodeID) error {
	return fmt.Errorf("%w: node %s was called, node %s answers", ErrWrongNode, wanted, answers)
}
