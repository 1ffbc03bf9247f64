package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/sharding"
)

// ServerOptions of a Server. The zero value of a bound means its default.
type ServerOptions struct {
	// Local runs what arrives: this node's region, never its router.
	Local   router.Local
	Leaders router.Leaders  // names the leader to those who asked the wrong node
	Shards  uint32          // data shards of the cluster
	Locate  sharding.Locate // nil hashes type and id
	Logger  *slog.Logger    // nil discards
	Clock   func() time.Time
	// Caller names the node that a call comes from; nil where nobody knows.
	Caller func(ctx context.Context) sharding.NodeID
	// MayLead says whether a node may lead a shard, by all that is known here:
	// nobody else delivers the messages of its entities. nil: whoever calls may.
	MayLead func(node sharding.NodeID, shard sharding.ShardID) bool
	// Allows says why the caller of a request may not make it, and does not
	// block; nil lets all.
	Allows func(*request.Request) error

	// Passed is told of each request that another node brings before it runs here,
	// and does not block. Nil: nobody is told.
	Passed func(from sharding.NodeID, r *request.Request)

	// StreamRequests and StreamBytes bound what one stream has that is not
	// answered (16,384; 32 MiB); the server stops reading there.
	StreamRequests, StreamBytes int
	// MaxStreams bounds the streams of all nodes (1,024).
	MaxStreams int
}

// streamName is what a node calls one of its streams.
type streamName struct {
	node sharding.NodeID
	name string
}

// Server answers other nodes' Clients. It is safe for concurrent use.
type Server struct {
	opts    ServerOptions
	batches batches

	mu      sync.Mutex
	streams map[streamName]*serverStream // the newest
	open    map[*serverStream]struct{}
	closed  bool
	none    chan struct{} // closed when closed and no stream is open
}

// NewServer makes a server; it starts nothing.
func NewServer(opts ServerOptions) (*Server, error) {
	if opts.Local == nil || opts.Leaders == nil || opts.Shards < 1 {
		return nil, errors.New("forward: shards, this node's region and the leaders are needed")
	}
	opts.Locate = opts.Locate.OrDefault(opts.Shards)
	for _, n := range []struct {
		value    *int
		standard int
	}{{&opts.StreamRequests, 16384}, {&opts.StreamBytes, 32 << 20}, {&opts.MaxStreams, 1024}} {
		if *n.value == 0 {
			*n.value = n.standard
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Allows == nil {
		opts.Allows = func(*request.Request) error { return nil }
	}
	if opts.Passed == nil {
		opts.Passed = func(sharding.NodeID, *request.Request) {}
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Caller == nil {
		opts.Caller = func(context.Context) sharding.NodeID { return "" }
	}
	if opts.MayLead == nil {
		opts.MayLead = func(sharding.NodeID, sharding.ShardID) bool { return true }
	}
	return &Server{
		opts: opts, streams: make(map[streamName]*serverStream), open: make(map[*serverStream]struct{}), none: make(chan struct{}),
	}, nil
}

// Handler returns the service and the path to mount it at. Whoever mounts it
// admits other nodes only.
func (s *Server) Handler() (path string, h http.Handler) {
	stream := connect.NewBidiStreamHandler(peerv1connect.ForwardServiceForwardProcedure, s.forward,
		connect.WithCodec(wire.Codec{}), connect.WithCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxStreamBytes))
	return "/" + peerv1connect.ForwardServiceName + "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &controller{rc: http.NewResponseController(w)}
		defer c.end()
		c.deadline(time.Time{}) // the server's timeouts are for calls that end
		stream.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{}, c)))
	})
}

// controller cuts a stream. It must not be used once the handler has returned;
// mu is held over its calls, which set a deadline and do not wait.
type controller struct {
	mu sync.Mutex
	rc *http.ResponseController
}

type controllerKey struct{}

func (c *controller) end() {
	c.mu.Lock()
	c.rc = nil
	c.mu.Unlock()
}

func (c *controller) deadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rc != nil {
		c.rc.SetReadDeadline(t)
		c.rc.SetWriteDeadline(t)
	}
}

// stopReading makes the read under way fail, and all after it.
func (c *controller) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rc != nil {
		c.rc.SetReadDeadline(pastTime)
	}
}

var (
	errStopping = errors.New("the node is stopping")
	errTooMany  = errors.New("too many nodes forward to this one")
	errReplaced = errors.New("a newer stream has taken this one's place")
)

// enter admits a stream and ends the one whose place it takes. From then on
// that one hands nothing over any more.
func (s *Server) enter(st *serverStream) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return connect.NewError(connect.CodeUnavailable, errStopping)
	}
	if len(s.open) >= s.opts.MaxStreams {
		s.mu.Unlock()
		return connect.NewError(connect.CodeResourceExhausted, errTooMany)
	}
	before := s.streams[st.name]
	s.streams[st.name] = st
	s.open[st] = struct{}{}
	s.mu.Unlock()
	if before != nil {
		before.replace()
	}
	return nil
}

func (s *Server) leave(st *serverStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.name] == st {
		delete(s.streams, st.name)
	}
	delete(s.open, st)
	if s.closed && len(s.open) == 0 {
		close(s.none)
	}
}

// Close takes no more requests, lets what has arrived be answered and returns
// when all streams have ended. When ctx ends first it cuts them.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if len(s.open) == 0 {
			close(s.none)
		}
	}
	open := make([]*serverStream, 0, len(s.open))
	for st := range s.open {
		open = append(open, st)
	}
	s.mu.Unlock()
	for _, st := range open {
		st.controller.stopReading()
	}
	select {
	case <-s.none:
		return nil
	case <-ctx.Done():
	}
	for _, st := range open {
		st.controller.deadline(pastTime)
	}
	return ctx.Err()
}

// leaderOf names a shard's leader; empty while none is known.
func (s *Server) leaderOf(shard sharding.ShardID) sharding.NodeID {
	if node, _, known := s.opts.Leaders.Leader(shard); known {
		return node
	}
	return ""
}
