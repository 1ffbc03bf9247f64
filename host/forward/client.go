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

// Options of a Client. The zero value of a bound means its default.
type Options struct {
	// Self names this node to its peers.
	Self sharding.NodeID
	// Connect returns the HTTP/2 client of a node and the base of its URLs. It
	// does not block.
	Connect func(sharding.NodeID) (client *http.Client, baseURL string, err error)
	Logger  *slog.Logger     // nil discards
	Clock   func() time.Time // time.Now when nil
	// Epoch counts the pauses of the process: what a router took before one is
	// not sent after it. None when nil.
	Epoch func() uint64
	// Principals reports that other nodes are told whose requests are: the
	// cluster's level has it. Nil: they are.
	Principals func() bool
	// Traces reports likewise that they are told in which spans requests are made.
	Traces func() bool

	// Streams to each peer (4): one shard's requests keep to one.
	Streams int
	// StreamRequests and StreamBytes bound what a stream has that is not
	// answered (16,384; 16 MiB). What is beyond fails with request.ErrBusy.
	StreamRequests, StreamBytes int
	// MinPause and MaxPause bound how long a node that could not be reached is
	// taken for unreachable without another attempt (5 ms, 250 ms); it doubles
	// from one to the other.
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
	if o.Epoch == nil {
		o.Epoch = func() uint64 { return 0 }
	}
	for _, says := range []*func() bool{&o.Principals, &o.Traces} {
		if *says == nil {
			*says = func() bool { return true }
		}
	}
	return o
}

// Client is the router's Remote. It is safe for concurrent use.
type Client struct {
	opts Options
	ctx  context.Context // of all links
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.RWMutex
	peers  map[sharding.NodeID][]*link
	closed bool
}

// NewClient makes a client; streams are opened when they are needed.
func NewClient(opts Options) (*Client, error) {
	if opts.Connect == nil || opts.Self == "" {
		return nil, errors.New("forward: a name and a way to connect are needed")
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Client{opts: opts.withDefaults(), ctx: ctx, stop: stop, peers: make(map[sharding.NodeID][]*link)}, nil
}

// Submit sends requests to a node, in order for each shard. It never blocks,
// keeps no reference to the slice and completes each request exactly once,
// possibly before it returns: with the outcome that the node gave it, with
// request.ErrUnreachable when it was not sent, with request.ErrOutcomeUnknown
// when no answer came, and with request.ErrBusy when too much is under way.
// Once a stream has failed a request of a shard for the way's sake, it fails
// later ones of the same or an earlier Route.Round.
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

// links returns the links to a node; nil when the client is closed.
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

// PeerSilent breaks the streams to a node of which nothing is heard: what is
// under way fails with its outcome unknown, and what comes is unreachable until
// PeerHeard.
func (c *Client) PeerSilent(node sharding.NodeID) {
	c.each(node, (*link).sever)
}

// PeerHeard lets a node be tried again at once.
func (c *Client) PeerHeard(node sharding.NodeID) {
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

// Close breaks all streams and joins their goroutines. What is under way fails
// as when its stream breaks.
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
