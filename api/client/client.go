package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/api/wire"
)

// Options configure a Client. The zero value is ready to use.
type Options struct {
	// Timeout limits a call whose context has no deadline, including all its
	// attempts; default 10 s. Uploads and activations get three times as much.
	Timeout time.Duration
	// MinBackoff and MaxBackoff limit the pause before another attempt;
	// defaults 10 ms and 500 ms. The pause doubles with each attempt, from
	// MinBackoff to MaxBackoff, and a random part is subtracted.
	MinBackoff, MaxBackoff time.Duration
	// GivenOnly restricts the client to the given addresses: it does not ask for
	// the other nodes and their shards. Use it behind a load balancer, or if nodes
	// cannot be reached at the addresses that they advertise.
	GivenOnly bool
	// TLS configures how nodes are verified and which certificate the client
	// presents. If it is nil, https addresses are verified against the system's
	// certificate authorities. If it is set, addresses without a scheme are
	// https, and http is rejected. New copies it; its GetClientCertificate may
	// reread a certificate.
	TLS *tls.Config
	// Token is sent with every call as its bearer token; empty sends none. It is
	// sent over https; over http it is sent only to this machine, see
	// InsecureToken.
	Token string
	// TokenSource returns the token of each request and replaces Token. It is
	// called concurrently by many goroutines and should cache its token instead
	// of fetching it for each call. If it returns an error, the request fails
	// without being sent.
	TokenSource func(ctx context.Context) (string, error)
	// InsecureToken allows sending the token over http to any machine:
	// anybody on the path can read it.
	InsecureToken bool
	// HTTPClient replaces the client's own HTTP/2 transport. It must speak
	// HTTP/2 for Stream to work. Close does not close it.
	HTTPClient *http.Client
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = 10 * time.Millisecond
	}
	if o.MaxBackoff < o.MinBackoff {
		o.MaxBackoff = max(500*time.Millisecond, o.MinBackoff)
	}
	return o
}

// maxAnswerBytes limits a message from a server; no server sends a larger
// message.
const maxAnswerBytes = 4 << 20

// Client calls the nodes of one cluster. The first node that answers
// determines the cluster. A node of a different cluster rejects the client's
// calls. They are then sent to other nodes or, if there are none, fail with
// an *OtherClusterError. A Client is safe for concurrent use.
type Client struct {
	opts    Options
	http    *http.Client
	scheme  string                  // scheme of the first address
	mu      sync.Mutex              // guards changes to nodes
	nodes   atomic.Pointer[[]*node] // the given nodes, then the discovered ones
	at      atomic.Uint32           // index of the node that is called, modulo the number of nodes
	learner learner
	cluster atomic.Pointer[string] // the first cluster id that a node reported; never changes
}

// node is one address and the services behind it.
type node struct {
	url      string
	id       atomic.Pointer[string] // nil until it is known
	avoidTo  atomic.Int64           // unix nanoseconds
	other    atomic.Bool            // the last answer came from another cluster
	entities entityv1connect.EntityServiceClient
	modules  modulev1connect.ModuleServiceClient
	cluster  clusterv1connect.ClusterServiceClient
	journal  journalv1connect.JournalServiceClient
	stream   *connect.Client[wire.Message, wire.Message]
}

// Dial returns a client of one node with the default options. Like New, it does
// not connect.
func Dial(addr string) (*Client, error) { return New([]string{addr}, Options{}) }

// New returns a client for the nodes of a cluster. An address is host:port or a
// URL with the scheme http or https; without a scheme it is http, or https if
// Options.TLS is set. New does not connect: the first call does. It fails with
// an *InsecureTokenError if a token would be sent over http to another machine.
func New(addrs []string, opts Options) (*Client, error) {
	if len(addrs) == 0 {
		return nil, errors.New("no address is set")
	}
	if opts.TLS != nil && opts.HTTPClient != nil {
		return nil, errors.New("Options.TLS and Options.HTTPClient must not both be set: the HTTP client has its own TLS settings")
	}
	c := &Client{opts: opts.withDefaults(), http: opts.HTTPClient}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport(opts.TLS)}
	}
	var nodes []*node
	for _, addr := range addrs {
		if opts.TLS != nil && !strings.Contains(addr, "://") {
			addr = "https://" + addr
		}
		base, err := baseURL(addr)
		if err != nil {
			return nil, err
		}
		if opts.TLS != nil && strings.HasPrefix(base, "http://") {
			return nil, fmt.Errorf("%q is an address without TLS, but Options.TLS is set: use https", addr)
		}
		if !c.opts.tokenMayGo(base) {
			return nil, &InsecureTokenError{Address: addr}
		}
		nodes = append(nodes, c.newNode(base))
	}
	c.scheme, _, _ = strings.Cut(nodes[0].url, "://")
	c.nodes.Store(&nodes)
	return c, nil
}

func (c *Client) newNode(base string) *node {
	n := &node{url: base}
	doer := envelopeDoer{c, n}
	// Do not ask for compressed answers: compressing costs both sides more time.
	plain := connect.WithClientOptions(connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswerBytes))
	n.entities = entityv1connect.NewEntityServiceClient(doer, base, plain)
	n.modules = modulev1connect.NewModuleServiceClient(doer, base, plain)
	n.cluster = clusterv1connect.NewClusterServiceClient(doer, base, plain)
	n.journal = journalv1connect.NewJournalServiceClient(doer, base, plain)
	n.stream = connect.NewClient[wire.Message, wire.Message](doer,
		base+entityv1connect.EntityServiceSendCommandStreamProcedure, plain, connect.WithCodec(wire.Codec{}))
	return n
}

func (n *node) name(id string) { n.id.Store(&id) }

// avoid keeps the node from being chosen as a leader for avoidFor.
func (n *node) avoid() { n.avoidTo.Store(time.Now().Add(avoidFor).UnixNano()) }

func (n *node) isAvoided() bool {
	to := n.avoidTo.Load()
	return to != 0 && time.Now().UnixNano() < to
}

// memberURL returns the URL of an address that nodes advertise. It fails for a
// node to which the token must not be sent.
func (c *Client) memberURL(address string) (string, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", err
	}
	base, err := baseURL(c.scheme + "://" + address)
	if err == nil && !c.opts.tokenMayGo(base) {
		err = &InsecureTokenError{Address: address}
	}
	return base, err
}

func baseURL(addr string) (string, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not an address: use host:port or a URL", addr)
	}
	return strings.TrimSuffix(addr, "/"), nil
}

// Close closes idle connections. It does not close streams; their owners do.
func (c *Client) Close() error {
	if c.opts.HTTPClient == nil {
		c.http.CloseIdleConnections()
	}
	return nil
}

// current returns the node to which calls are sent.
func (c *Client) current() (n *node, at uint32) {
	at = c.at.Load()
	nodes := *c.nodes.Load()
	return nodes[at%uint32(len(nodes))], at
}

// next moves on from a node that did not answer, unless another call has
// already done so. It prefers a node that has not just failed.
func (c *Client) next(from uint32) {
	nodes := *c.nodes.Load()
	to := from + 1
	for i := range uint32(len(nodes)) {
		if !nodes[(from+1+i)%uint32(len(nodes))].isAvoided() {
			to = from + 1 + i
			break
		}
	}
	c.at.CompareAndSwap(from, to)
}
