package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// GossipPreface is the first bytes of a gossip connection. No HTTP request and
// no TLS handshake begins with it.
const GossipPreface = "hostdgs\x01"

// Bounds of a split listener.
const (
	// decideTimeout limits the time until a connection can be
	// classified.
	decideTimeout = 5 * time.Second
	// maxUndecided bounds the connections that are not yet classified. A
	// further connection closes the oldest connection of the address that
	// has the most connections. Honest clients send within a round trip, so
	// a flooding client loses its own connections.
	maxUndecided = 4096
	// maxUnaccepted bounds the connections of a kind that have not been accepted
	// yet. Further connections are closed, as a kernel does if its backlog
	// is full.
	maxUnaccepted = 1024
)

// Split separates a listener's gossip connections from all others, which it
// treats as HTTP, by their first bytes. Gossip connections are accepted without
// their preface. Both listeners have the address of l and share the ownership
// of l: when both are closed, Split closes l and waits for its goroutines. If only one is
// closed, connections of its kind are rejected.
func Split(l net.Listener) (http, gossip net.Listener) { return SplitOver(l, nil) }

// SplitOver is Split for the result of open on each connection, such as a TLS
// handshake; nil accepts connections as they are. open must fail after the read
// deadline of the connection and when the connection is closed.
func SplitOver(l net.Listener, open func(net.Conn) (net.Conn, error)) (http, gossip net.Listener) {
	s := &splitter{base: l, open: open, done: make(chan struct{})}
	s.http.init(s)
	s.gossip.init(s)
	s.tasks.Go(s.accept)
	return &s.http, &s.gossip
}

// DialGossip dials a gossip connection.
func DialGossip(ctx context.Context, n Network, address string) (net.Conn, error) {
	conn, err := n.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetWriteDeadline(deadline)
	}
	if _, err := io.WriteString(conn, GossipPreface); err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial: %w", err)
	}
	conn.SetWriteDeadline(time.Time{})
	return conn, nil
}

type splitter struct {
	base         net.Listener
	open         func(net.Conn) (net.Conn, error) // nil if connections are taken as they are
	http, gossip half
	tasks        sync.WaitGroup
	done         chan struct{} // closed when both halves are closed

	mu        sync.Mutex
	undecided undecided
	closed    int // number of closed halves
}

// half is one of the two listeners.
type half struct {
	splitter *splitter
	accepted chan net.Conn
	failed   chan struct{} // closed when the listener below has failed
	err      error         // the reason; valid after failed is closed
	closed   chan struct{}
	once     sync.Once
}

func (h *half) init(s *splitter) {
	h.splitter = s
	h.accepted = make(chan net.Conn, maxUnaccepted)
	h.failed, h.closed = make(chan struct{}), make(chan struct{})
}

// Accept implements net.Listener.
func (h *half) Accept() (net.Conn, error) {
	select {
	case <-h.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-h.accepted:
		return conn, nil
	case <-h.failed:
		return nil, h.err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (h *half) Addr() net.Addr { return h.splitter.base.Addr() }

// Close implements net.Listener. When the second half is closed, Close waits
// for the goroutines of both halves.
func (h *half) Close() (err error) {
	h.once.Do(func() {
		close(h.closed)
		err = h.splitter.halfClosed()
		h.drain()
	})
	return err
}

func (h *half) drain() {
	for {
		select {
		case conn := <-h.accepted:
			conn.Close()
		default:
			return
		}
	}
}

// give passes a connection to Accept, or closes it.
func (h *half) give(conn net.Conn) {
	select {
	case <-h.closed:
		conn.Close()
		return
	default:
	}
	select {
	case h.accepted <- conn:
	default:
		conn.Close()
	}
}

func (s *splitter) halfClosed() error {
	s.mu.Lock()
	s.closed++
	last := s.closed == 2
	if last {
		for conn := range s.undecided.all() {
			conn.Close()
		}
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	close(s.done)
	err := s.base.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.tasks.Wait()
	s.http.drain()
	s.gossip.drain()
	return err
}

// accept accepts connections from the listener below. Like net/http, it
// survives a temporary lack of file descriptors.
func (s *splitter) accept() {
	var pause time.Duration
	for {
		conn, err := s.base.Accept()
		if err == nil {
			pause = 0
			s.enter(conn)
			continue
		}
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			s.fail(err)
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		if !s.sleep(pause) {
			s.fail(net.ErrClosed)
			return
		}
	}
}

// sleep reports whether a half is still open after d.
func (s *splitter) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	}
}

func (s *splitter) fail(err error) {
	for _, h := range []*half{&s.http, &s.gossip} {
		h.err = err
		close(h.failed)
	}
}

// enter starts to classify a connection.
func (s *splitter) enter(conn net.Conn) {
	s.mu.Lock()
	if s.closed == 2 {
		s.mu.Unlock()
		conn.Close()
		return
	}
	if s.undecided.count >= maxUndecided {
		defer s.undecided.cut().Close()
	}
	e := s.undecided.add(conn)
	s.mu.Unlock()
	s.tasks.Go(func() {
		decided, h := s.decide(conn)
		s.mu.Lock()
		s.undecided.remove(e) // no effect if it was cut
		s.mu.Unlock()
		if h == nil {
			conn.Close()
			return
		}
		h.give(decided)
	})
}

// decide reads until the bytes are the preface or cannot become it.
func (s *splitter) decide(conn net.Conn) (net.Conn, *half) {
	conn.SetReadDeadline(time.Now().Add(decideTimeout))
	if s.open != nil {
		opened, err := s.open(conn)
		if err != nil {
			return nil, nil
		}
		conn = opened
	}
	c := &sniffed{Conn: conn}
	for c.have < len(c.head) {
		n, err := conn.Read(c.head[c.have:])
		c.have += n
		if string(c.head[:c.have]) != GossipPreface[:c.have] {
			break
		}
		if err != nil && c.have < len(c.head) {
			conn.Close()
			return nil, nil
		}
	}
	conn.SetReadDeadline(time.Time{})
	if string(c.head[:c.have]) == GossipPreface {
		return conn, &s.gossip
	}
	return c, &s.http
}

// sniffed is a connection whose first bytes have been read.
type sniffed struct {
	net.Conn
	head        [len(GossipPreface)]byte
	given, have int
}

// First returns the first byte of the connection, or 0 if it ended without one.
func (c *sniffed) First() byte { return c.head[0] }

// NetConn returns the underlying connection.
func (c *sniffed) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *sniffed) Read(p []byte) (int, error) {
	if c.given < c.have {
		n := copy(p, c.head[c.given:c.have])
		c.given += n
		return n, nil
	}
	return c.Conn.Read(p)
}
