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

// leaders knows the leaders of shards.
type leaders interface {
	// Leader names the leader to clients that asked the wrong node.
	Leader(sharding.ShardID) (node sharding.NodeID, self, known bool)
	// MayLead reports whether a node may lead a shard, as far as this node
	// knows. Only such a node may deliver messages of the shard's entities.
	MayLead(sharding.NodeID, sharding.ShardID) bool
}

// authorizer authorizes requests.
type authorizer interface {
	// AuthorizeForwarded returns why the principal of a request may not make it,
	// or nil. It must not block.
	AuthorizeForwarded(*request.Request) error
}

// ServerOptions configures a Server. If a bound is zero, its default is used.
type ServerOptions struct {
	// Local runs the requests on this node. It must not be a router, which
	// could forward them again.
	Local   router.Local
	Leaders leaders
	Shards  uint32          // data shards of the cluster
	Locate  sharding.Locate // nil hashes the entity's type and id
	Logger  *slog.Logger    // nil discards
	Clock   func() time.Time
	// Caller returns the node that a call comes from. If Caller is nil, that
	// node is unknown.
	Caller func(ctx context.Context) sharding.NodeID
	// Roles authorizes requests. If it is nil, everything is allowed.
	Roles authorizer

	// OnForwarded is called for each request of another node before it runs here. It
	// must not block. May be nil.
	OnForwarded func(from sharding.NodeID, r *request.Request)

	// StreamRequests and StreamBytes bound the unanswered requests of a stream
	// (16,384; 32 MiB). At a bound the server stops reading.
	StreamRequests, StreamBytes int
	// MaxStreams bounds the streams of all nodes (1,024).
	MaxStreams int
}

// streamName identifies a stream of a node.
type streamName struct {
	node sharding.NodeID
	name string
}

// Server answers other nodes' Clients. It is safe for concurrent use.
type Server struct {
	opts    ServerOptions
	batches batches

	mu      sync.Mutex
	streams map[streamName]*serverStream // the newest stream of each name
	open    map[*serverStream]struct{}
	closed  bool
	none    chan struct{} // closed when the server is closed and no stream is open
}

// NewServer returns a server. It starts nothing.
func NewServer(opts ServerOptions) (*Server, error) {
	if opts.Local == nil || opts.Leaders == nil || opts.Shards < 1 {
		return nil, errors.New("forward: shards, the shard router and the leaders must be set")
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
	if opts.OnForwarded == nil {
		opts.OnForwarded = func(sharding.NodeID, *request.Request) {}
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Caller == nil {
		opts.Caller = func(context.Context) sharding.NodeID { return "" }
	}
	return &Server{
		opts: opts, streams: make(map[streamName]*serverStream), open: make(map[*serverStream]struct{}), none: make(chan struct{}),
	}, nil
}

// Handler returns the service and the path to mount it at. The caller must
// wrap it so that only other nodes are admitted.
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

// controller cuts a stream. rc must not be used after the handler has returned.
// mu is held during its calls, which set a deadline and do not wait.
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

// stopReading makes the read in progress and all later reads fail.
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
	errReplaced = errors.New("a newer stream of the node replaced this stream")
)

// enter admits a stream and ends the stream that it replaces, which submits
// nothing from then on.
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

// Close accepts no more requests, lets received requests be answered, and
// returns when all streams have ended. If ctx ends first, it cuts them.
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

// leaderOf returns a shard's leader, or "" if none is known.
func (s *Server) leaderOf(shard sharding.ShardID) sharding.NodeID {
	if node, _, known := s.opts.Leaders.Leader(shard); known {
		return node
	}
	return ""
}
