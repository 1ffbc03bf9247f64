package admission

import (
	"context"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// ErrStopping ends streams when the server stops. The next attempt reaches a
// different node, or this node after its restart.
var ErrStopping = status.New(connect.CodeUnavailable, "the node is stopping")

// Streams tracks the open streams: it limits their number, ends them when
// the server stops, and resets streams whose clients stop reading.
type Streams struct {
	limit int
	// conns limits the streams of an address to limitOf.
	conns   *Connections
	limitOf int
	stall   time.Duration // the maximum duration of a write

	mu     sync.Mutex
	open   map[*Stream]struct{}
	stop   bool
	stopCh chan struct{} // closed by StopAll
}

// NewStreams admits limit streams at a time, limitOf per address. A client must
// not leave a message unread for longer than stall.
func NewStreams(limit, limitOf int, stall time.Duration, conns *Connections) *Streams {
	return &Streams{limit: limit, conns: conns, limitOf: limitOf, stall: stall, open: make(map[*Stream]struct{}), stopCh: make(chan struct{})}
}

// Stopping returns a channel that is closed when the server stops.
func (g *Streams) Stopping() <-chan struct{} { return g.stopCh }

// Stream is one open stream.
type Stream struct {
	owner *Streams
	timer *time.Timer
	given func()  // releases the place of the address
	after *places // keeps the place after Leave; nil for none

	// The controller must not be used after the handler has returned. mu is held
	// during its calls, which set a deadline and do not block.
	mu   sync.Mutex
	conn *http.ResponseController // nil after the stream has ended
}

// Enter admits a stream, or fails with request.ErrOverloaded or ErrStopping.
func (g *Streams) Enter(ctx context.Context) (*Stream, error) {
	s := &Stream{owner: g, conn: Control(ctx)}
	s.after, _ = ctx.Value(placesKey{}).(*places)
	s.timer = time.AfterFunc(time.Hour, s.cut)
	s.timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop {
		return nil, ErrStopping
	}
	if len(g.open) >= g.limit {
		return nil, request.ErrOverloaded
	}
	var ok bool
	if s.given, ok = g.conns.stream(ctx, g.limitOf); !ok {
		return nil, request.ErrOverloaded
	}
	g.open[s] = struct{}{}
	return s, nil
}

// Leave must be called when the stream ends. What the protocol writes after it,
// such as an error or trailers, counts as one more write.
func (s *Stream) Leave() {
	s.timer.Stop()
	s.mu.Lock()
	if s.conn != nil {
		s.conn.SetWriteDeadline(time.Now().Add(s.owner.stall))
	}
	s.conn = nil
	s.mu.Unlock()
	if s.after != nil {
		s.after.left = append(s.after.left, s)
		return
	}
	s.release()
}

// release releases the places of the stream.
func (s *Stream) release() {
	s.owner.mu.Lock()
	delete(s.owner.open, s)
	s.given()
	s.owner.mu.Unlock()
}

// places has the streams that a request has left without giving up their places.
// Only the goroutine of the request may use it.
type places struct{ left []*Stream }

// placesKey is the context key of a *places.
type placesKey struct{}

// KeepPlaces returns a context in which streams keep their places after Leave,
// until release is called. A handler that collects the messages of a stream, and
// writes them when the stream has ended, needs this, because the messages take
// memory until they are written.
func (g *Streams) KeepPlaces(ctx context.Context) (kept context.Context, release func()) {
	p := new(places)
	return context.WithValue(ctx, placesKey{}, p), func() {
		for _, s := range p.left {
			s.release()
		}
		p.left = nil
	}
}

// BeginWrite and EndWrite must surround every write. A slow write
// resets the stream, because a client that does not read holds memory here.
func (s *Stream) BeginWrite() { s.timer.Reset(s.owner.stall) }
func (s *Stream) EndWrite()   { s.timer.Stop() }

// AbortRead makes the current read and all later ones fail.
func (s *Stream) AbortRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// cut resets the stream.
func (s *Stream) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// IsStopping reports whether the server is stopping.
func (g *Streams) IsStopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stop
}

// StopAll admits no more streams and makes the open ones accept no more input.
func (g *Streams) StopAll() {
	g.mu.Lock()
	var open []*Stream
	if !g.stop {
		g.stop = true
		close(g.stopCh)
		for s := range g.open {
			open = append(open, s)
		}
	}
	g.mu.Unlock()
	for _, s := range open {
		s.AbortRead()
	}
}

// Control returns the deadline control of a stream's connection; nil if the
// request is not a stream. It must not be used after the handler has returned.
func Control(ctx context.Context) *http.ResponseController {
	conn, _ := ctx.Value(connKey{}).(*http.ResponseController)
	return conn
}

// connKey is the context key of the *http.ResponseController of a stream.
type connKey struct{}
