package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// errStopping ends streams when the server stops: another attempt reaches
// another node, or this one after its start.
var errStopping = errors.New("the node is stopping")

// streamGuard knows the streams that are open: it bounds their number, ends
// them when the server stops, and cuts those whose client stops reading.
type streamGuard struct {
	limit int
	stall time.Duration // a write may take this long

	mu     sync.Mutex
	open   map[*guarded]struct{}
	stop   bool
	stopCh chan struct{} // closed by stopAll
}

func newStreamGuard(limit int, stall time.Duration) *streamGuard {
	return &streamGuard{limit: limit, stall: stall, open: make(map[*guarded]struct{}), stopCh: make(chan struct{})}
}

// guarded is one open stream.
type guarded struct {
	owner *streamGuard
	timer *time.Timer

	// The controller must not be used once the handler has returned; mu is
	// held over its calls, which set a deadline and do not wait.
	mu   sync.Mutex
	conn *http.ResponseController // nil once the stream has ended
}

// enter admits a stream, or fails with ErrOverloaded or errStopping.
func (g *streamGuard) enter(ctx context.Context) (*guarded, error) {
	conn, _ := ctx.Value(connKey{}).(*http.ResponseController)
	s := &guarded{owner: g, conn: conn}
	s.timer = time.AfterFunc(time.Hour, s.cut)
	s.timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop {
		return nil, errStopping
	}
	if len(g.open) >= g.limit {
		return nil, ErrOverloaded
	}
	g.open[s] = struct{}{}
	return s, nil
}

// leave is called when the stream ends.
func (s *guarded) leave() {
	s.timer.Stop()
	s.mu.Lock()
	s.conn = nil
	s.mu.Unlock()
	s.owner.mu.Lock()
	delete(s.owner.open, s)
	s.owner.mu.Unlock()
}

// beginWrite and endWrite stand around every write: one that takes too long
// resets the stream, because a client that does not read holds memory here.
func (s *guarded) beginWrite() { s.timer.Reset(s.owner.stall) }
func (s *guarded) endWrite()   { s.timer.Stop() }

// abortRead makes the read under way, and all after it, fail.
func (s *guarded) abortRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// cut resets the stream.
func (s *guarded) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

func (g *streamGuard) isStopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stop
}

// stopAll lets no more streams in and makes the open ones take no more input.
func (g *streamGuard) stopAll() {
	g.mu.Lock()
	var open []*guarded
	if !g.stop {
		g.stop = true
		close(g.stopCh)
		for s := range g.open {
			open = append(open, s)
		}
	}
	g.mu.Unlock()
	for _, s := range open {
		s.abortRead()
	}
}

// connKey is the context's key for the *http.ResponseController of a stream.
type connKey struct{}
