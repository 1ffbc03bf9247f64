package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// connector connects to other nodes.
type connector interface {
	// Client returns the HTTP/2 client of a node and the base of its URLs. It
	// must not block.
	Client(sharding.NodeID) (client *http.Client, baseURL string, err error)
}

// Options configures a Client. If a bound is zero, its default is used.
type Options struct {
	// Self is this node's name.
	Self   sharding.NodeID
	Peers  connector
	Logger *slog.Logger     // nil discards
	Clock  func() time.Time // nil means time.Now
	// Pauses counts the pauses of the process. A request that the router took
	// before a pause is not sent after it. If nil, there are no pauses.
	Pauses interface{ Epoch() uint64 }
	// Metadata knows the cluster version, which decides whether other nodes
	// receive the requests' principals and trace contexts. Nil means that
	// other nodes receive both.
	Metadata interface {
		ClusterVersion() sharding.ClusterVersion
	}

	// Streams is the number of streams to each peer (4). All requests of a
	// shard use the same stream.
	Streams int
	// StreamRequests and StreamBytes bound the unanswered requests of a stream
	// (16,384; 16 MiB). Requests beyond a bound fail with request.ErrBusy.
	StreamRequests, StreamBytes int
	// MinPause and MaxPause bound how long a node that could not be reached is
	// regarded as unreachable without another attempt (5 ms, 250 ms). The
	// time doubles with each failure, from MinPause to MaxPause.
	MinPause, MaxPause time.Duration
	// OpenTimeout bounds the opening of a stream (2 s).
	OpenTimeout time.Duration
}

func (o Options) withDefaults() Options {
	for _, n := range []struct {
		value    *int
		standard int
	}{{&o.Streams, 4}, {&o.StreamRequests, 16384}, {&o.StreamBytes, 16 << 20}} {
		if *n.value == 0 {
			*n.value = n.standard
		}
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.MinPause, 5 * time.Millisecond}, {&o.MaxPause, 250 * time.Millisecond}, {&o.OpenTimeout, 2 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

// epoch returns the number of pauses of the process.
func (o *Options) epoch() uint64 {
	if o.Pauses == nil {
		return 0
	}
	return o.Pauses.Epoch()
}

// says returns which optional fields of requests other nodes receive.
func (o *Options) says() says {
	version := sharding.MaxVersion
	if o.Metadata != nil {
		version = o.Metadata.ClusterVersion()
	}
	return says{version >= sharding.VersionPrincipal, version >= sharding.VersionRecordTrace}
}

// Client implements the router's Remote. It is safe for concurrent use.
type Client struct {
	opts Options
	ctx  context.Context // context of all links
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.RWMutex
	peers  map[sharding.NodeID][]*link
	closed bool
}

// NewClient returns a client. Streams are opened when they are needed.
func NewClient(opts Options) (*Client, error) {
	if opts.Peers == nil || opts.Self == "" {
		return nil, errors.New("forward: a name and a dialer must be set")
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Client{opts: opts.withDefaults(), ctx: ctx, stop: stop, peers: make(map[sharding.NodeID][]*link)}, nil
}

// Submit sends requests to a node, in order for each shard. It never blocks,
// keeps no reference to the slice and completes each request exactly once,
// possibly before it returns: with the outcome that the node returned, with
// request.ErrUnreachable if it was not sent, with request.ErrOutcomeUnknown if
// no answer came, or with request.ErrBusy if too many are unanswered. Once a
// broken stream has made a request of a shard fail, later requests of the shard
// with the same or a lower Route.Round fail too.
func (c *Client) Submit(to sharding.NodeID, reqs []*request.Request) {
	links := c.links(to)
	if links == nil {
		complete(reqs, request.ErrUnreachable)
		return
	}
	for len(reqs) > 0 {
		at := int(reqs[0].Shard) % len(links)
		n := 1
		for n < len(reqs) && int(reqs[n].Shard)%len(links) == at {
			n++
		}
		links[at].put(reqs[:n])
		reqs = reqs[n:]
	}
}

// links returns the links to a node, or nil if the client is closed.
func (c *Client) links(to sharding.NodeID) []*link {
	c.mu.RLock()
	links, closed := c.peers[to], c.closed
	c.mu.RUnlock()
	if links != nil || closed {
		if closed {
			return nil
		}
		return links
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.peers[to] != nil {
		return c.peers[to]
	}
	for i := range c.opts.Streams {
		l := newLink(c, to, i)
		c.all.Go(func() { l.run(c.ctx) })
		links = append(links, l)
	}
	c.peers[to] = links
	return links
}

// PeerSuspected breaks the streams to a node that is suspected. Requests that were
// sent fail with an unknown outcome, and new requests fail as unreachable
// until PeerAlive.
func (c *Client) PeerSuspected(node sharding.NodeID) {
	c.each(node, (*link).sever)
}

// PeerAlive allows an attempt to reach a node now.
func (c *Client) PeerAlive(node sharding.NodeID) {
	c.each(node, (*link).revive)
}

func (c *Client) each(node sharding.NodeID, do func(*link)) {
	c.mu.RLock()
	links := c.peers[node]
	c.mu.RUnlock()
	for _, l := range links {
		do(l)
	}
}

// Close breaks all streams and joins their goroutines. Unanswered requests fail
// as if their streams had broken.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	done := make(chan struct{})
	go func() {
		c.all.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// complete fails requests.
func complete(reqs []*request.Request, err error) {
	for _, q := range reqs {
		q.Result = request.Result{Err: err}
		q.Done.Complete(q)
	}
}
