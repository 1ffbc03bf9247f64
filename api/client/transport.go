package client

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/api/wire"
)

// newTransport returns a transport for HTTP/2, with TLS for https. Pings detect
// a peer that died or hangs without closing its connections.
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

// envelopeDoer sends requests. It sends each message of a stream with one
// write, because connect writes the prefix and the message separately, which
// would cost a frame and a system call for each of them.
//
// It adds the client's cluster to every request, and rejects answers from
// another cluster.
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

// clusterHeader carries the id of a cluster, see GetClusterResponse.
const clusterHeader = "Hostd-Cluster"
