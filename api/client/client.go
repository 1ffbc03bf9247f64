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

// Options shape a Client. The zero value is ready to use.
type Options struct {
	// Timeout bounds a call whose context has no deadline, all its attempts
	// together (10 s). Uploads and activations get three times as much.
	Timeout time.Duration
	// MinBackoff and MaxBackoff bound the pause before another attempt (10 ms,
	// 500 ms); it doubles from one to the other, less a random part.
	MinBackoff, MaxBackoff time.Duration
	// GivenOnly keeps to the given addresses: the client does not ask for the
	// other nodes and their shards. It is for addresses in front of which
	// something shares calls out, and for nodes that cannot be reached under
	// the addresses that they give each other.
	GivenOnly bool
	// TLS is how the nodes are known, and the certificate that is shown to them;
	// nil goes by the authorities of the system where an address says https.
	// With it addresses are https without saying so, and http is refused. It is
	// copied; GetClientCertificate of it may read a certificate anew.
	TLS *tls.Config
	// Token is sent with every call as its bearer token; empty is none. It is sent
	// over https, and over http to this machine alone: see InsecureToken.
	Token string
	// TokenSource gives the token of each request in the place of Token. It is
	// called by many goroutines at once and should know its token without asking
	// somebody each time. An error of it fails the request before it is sent.
	TokenSource func(ctx context.Context) (string, error)
	// InsecureToken has the token sent over http wherever to: everybody on the
	// way can read it.
	InsecureToken bool
	// HTTPClient replaces the client's own HTTP/2 transport. It must speak
	// HTTP/2 for Stream to work. Close does not touch it.
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

// maxAnswerBytes bounds a message from a server; none sends more.
const maxAnswerBytes = 4 << 20

// Client calls the nodes of one cluster: the first of which a node has
// answered. A node of another one refuses its calls, and they go to the other
// nodes; where there are none, they fail with an *OtherClusterError. It is safe
// for concurrent use.
type Client struct {
	opts    Options
	http    *http.Client
	scheme  string                  // of the first address
	mu      sync.Mutex              // of changes to nodes
	nodes   atomic.Pointer[[]*node] // the given ones, then those learned of
	at      atomic.Uint32           // the node that calls go to, modulo their number
	learner learner
	cluster atomic.Pointer[string] // the first that a node named, for good
}

// node is one address and the services behind it.
type node struct {
	url      string
	id       atomic.Pointer[string] // nil until it is known
	avoidTo  atomic.Int64           // unix nanoseconds
	other    atomic.Bool            // the last answer was of another cluster
	entities entityv1connect.EntityServiceClient
	modules  modulev1connect.ModuleServiceClient
	cluster  clusterv1connect.ClusterServiceClient
	journal  journalv1connect.JournalServiceClient
	stream   *connect.Client[wire.Message, wire.Message]
}

// Dial makes a client of one node with the default options. Like New it does
// not connect yet.
func Dial(addr string) (*Client, error) { return New([]string{addr}, Options{}) }

// New makes a client of the nodes of a cluster. An address is host:port or a
// URL with the scheme http or https; without one it is http, and with
// Options.TLS https. It does not connect: calls do. It fails with an
// *InsecureTokenError where a token would go over http to another machine.
func New(addrs []string, opts Options) (*Client, error) {
	if len(addrs) == 0 {
		return nil, errors.New("no address is given")
	}
	if opts.TLS != nil && opts.HTTPClient != nil {
		return nil, errors.New("TLS and HTTPClient are both given: the second brings its own TLS")
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
			return nil, fmt.Errorf("%q is an address without TLS, and TLS is asked for: give https", addr)
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
	// Answers come uncompressed: see the server.
	plain := connect.WithClientOptions(connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswerBytes))
	n.entities = entityv1connect.NewEntityServiceClient(doer, base, plain)
	n.modules = modulev1connect.NewModuleServiceClient(doer, base, plain)
	n.cluster = clusterv1connect.NewClusterServiceClient(doer, base, plain)
	n.journal = journalv1connect.NewJournalServiceClient(doer, base, plain)
	n.stream = connect.NewClient[wire.Message, wire.Message](doer,
		base+entityv1connect.EntityServiceSendStreamProcedure, plain, connect.WithCodec(wire.Codec{}))
	return n
}

func (n *node) name(id string) { n.id.Store(&id) }

// avoid keeps the node from being chosen as a leader for a while.
func (n *node) avoid() { n.avoidTo.Store(time.Now().Add(avoidFor).UnixNano()) }

func (n *node) avoided() bool {
	to := n.avoidTo.Load()
	return to != 0 && time.Now().UnixNano() < to
}

// memberURL is the URL of an address that nodes give each other. There is none
// of a node that the token must not be sent to.
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
		return "", fmt.Errorf("%q is not an address: give host:port or a URL", addr)
	}
	return strings.TrimSuffix(addr, "/"), nil
}

// Close lets go of idle connections. Streams are closed by their owners.
func (c *Client) Close() error {
	if c.opts.HTTPClient == nil {
		c.http.CloseIdleConnections()
	}
	return nil
}

// current returns the node that calls go to.
func (c *Client) current() (n *node, at uint32) {
	at = c.at.Load()
	nodes := *c.nodes.Load()
	return nodes[at%uint32(len(nodes))], at
}

// next moves on from a node that did not answer, unless another call has, to
// one that has not failed just now, if there is any.
func (c *Client) next(from uint32) {
	nodes := *c.nodes.Load()
	to := from + 1
	for i := range uint32(len(nodes)) {
		if !nodes[(from+1+i)%uint32(len(nodes))].avoided() {
			to = from + 1 + i
			break
		}
	}
	c.at.CompareAndSwap(from, to)
}
