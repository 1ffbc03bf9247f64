package client

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/api/wire"
)

// newTransport speaks HTTP/2 without TLS, or with it for https. Pings find a
// peer that is gone or stopped without closing its connections.
func newTransport(config *tls.Config) *http.Transport {
	if config != nil {
		config = config.Clone()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: config,
		IdleConnTimeout: 30 * time.Second,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:               2 * time.Second,
			PingTimeout:                   2 * time.Second,
			WriteByteTimeout:              5 * time.Second,
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 8 << 20,
		},
	}
}

// envelopeDoer sends requests, and sends each message of a stream as one piece:
// its prefix and its bytes are written one after the other, and would leave in
// a frame and a system call each.
//
// It names the client's cluster in every request, and takes no answer of
// another.
type envelopeDoer struct {
	c *Client
	n *node
}

func (d envelopeDoer) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
		r.Body = &wire.Envelopes{Body: r.Body}
	}
	wanted := ""
	if id := d.c.cluster.Load(); id != nil {
		wanted = *id
		r.Header[clusterHeader] = []string{wanted}
	}
	if err := d.c.opts.authorize(r); err != nil {
		return nil, err
	}
	res, err := d.c.http.Do(r)
	if err != nil {
		return nil, err
	}
	id := res.Header.Get(clusterHeader)
	if id == "" {
		return res, nil // a node of an earlier release, or one without a cluster yet
	}
	first := d.c.cluster.Load()
	if first == nil {
		d.c.cluster.CompareAndSwap(nil, &id)
		first = d.c.cluster.Load()
	}
	if id == *first {
		d.n.other.Store(false)
		return res, nil
	}
	res.Body.Close()
	d.n.avoid()
	d.n.other.Store(true)
	all := !slices.ContainsFunc(*d.c.nodes.Load(), func(n *node) bool { return !n.other.Load() })
	return nil, &OtherClusterError{Address: r.URL.Host, Cluster: id, Wanted: *first, refused: wanted != "", all: all}
}

// clusterHeader names a cluster, see GetClusterResponse.
const clusterHeader = "Hostd-Cluster"
