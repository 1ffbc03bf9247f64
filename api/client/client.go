package client

import (
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

// maxAnswerBytes bounds a message from a server: a module, or the answers of a
// stream.
const maxAnswerBytes = 32 << 20

// Client calls the nodes of one cluster. It is safe for concurrent use.
type Client struct {
	opts    Options
	http    *http.Client
	scheme  string                  // of the first address
	mu      sync.Mutex              // of changes to nodes
	nodes   atomic.Pointer[[]*node] // the given ones, then those learned of
	at      atomic.Uint32           // the node that calls go to, modulo their number
	learner learner
}

// node is one address and the services behind it.
type node struct {
	url      string
	id       atomic.Pointer[string] // nil until it is known
	avoidTo  atomic.Int64           // unix nanoseconds
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
// URL with the scheme http or https. It does not connect: calls do.
func New(addrs []string, opts Options) (*Client, error) {
	if len(addrs) == 0 {
		return nil, errors.New("no address is given")
	}
	c := &Client{opts: opts.withDefaults(), http: opts.HTTPClient}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport()}
	}
	var nodes []*node
	for _, addr := range addrs {
		base, err := baseURL(addr)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, c.newNode(base))
	}
	c.scheme, _, _ = strings.Cut(nodes[0].url, "://")
	c.nodes.Store(&nodes)
	return c, nil
}

func (c *Client) newNode(base string) *node {
	doer := envelopeDoer{c.http}
	// Answers come uncompressed: see the server.
	plain := connect.WithClientOptions(connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswerBytes))
	return &node{
		url:      base,
		entities: entityv1connect.NewEntityServiceClient(doer, base, plain),
		modules:  modulev1connect.NewModuleServiceClient(doer, base, plain),
		cluster:  clusterv1connect.NewClusterServiceClient(doer, base, plain),
		journal:  journalv1connect.NewJournalServiceClient(doer, base, plain),
		stream: connect.NewClient[wire.Message, wire.Message](doer,
			base+entityv1connect.EntityServiceSendStreamProcedure, plain, connect.WithCodec(wire.Codec{})),
	}
}

func (n *node) name(id string) { n.id.Store(&id) }

// avoid keeps the node from being chosen as a leader for a while.
func (n *node) avoid() { n.avoidTo.Store(time.Now().Add(avoidFor).UnixNano()) }

func (n *node) avoided() bool {
	to := n.avoidTo.Load()
	return to != 0 && time.Now().UnixNano() < to
}

// memberURL is the URL of an address that nodes give each other.
func (c *Client) memberURL(address string) (string, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", err
	}
	return baseURL(c.scheme + "://" + address)
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
