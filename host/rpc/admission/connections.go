package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
)

// Bounds of connections beside those of NewConnections.
const (
	reservedConns        = 256 // beyond the most
	reservedAddressConns = 32
	// maxResets bounds the streams that a client resets on a connection in a
	// second: each has cost a handler.
	maxResets = 1000
	// callsEach and leastCalls say how many calls there may be at a time: so many
	// for each connection that there may be, whichever they are on. One costs about
	// 20 KB before its message is read, so that 250 on each connection would be
	// many times the memory that a node has.
	callsEach  = 4
	leastCalls = 1024
)

// errBusy is answered where there are too many calls.
var errBusy = errors.New("the node has too many calls at a time, or too many from this address; retry after a moment")

// errCrowded is answered where there are too many connections.
var errCrowded = errors.New("the node has too many connections, or too many from this address: close some")

// Connections shares the connections of a server out between addresses. When
// one has all that it may, or there are no more, the one that was idle for
// longest makes room, of the address that has the most if that has one. Where
// none is idle a few more are let in that get probes of health answered, calls
// between nodes where those are served, and nothing else, so a node that is
// busy with strangers is not taken for dead. What is beyond those is closed at
// once. It is safe for concurrent use.
type Connections struct {
	most, mostOf           int
	mostCalls, mostCallsOf int

	refused atomic.Uint64 // calls
	closed  atomic.Uint64 // that had to make room or got none

	mu       sync.Mutex
	total    int
	calls    int
	reserved int
	by       map[string]*address
	open     map[*connection]struct{}
}

// address is who connects: an IP address, or the network of 64 bits that one
// client has of IPv6.
type address struct {
	conns    map[*connection]struct{} // without those of the reserve
	reserved int
	streams  int // of Streams
	calls    int // under way
}

// NewConnections shares most connections out, of which an address has at most
// mostOf beside a reserve.
func NewConnections(most, mostOf int) *Connections {
	return &Connections{most: most, mostOf: min(most, mostOf), mostCalls: max(callsEach*most, leastCalls), mostCallsOf: max(callsEach*min(most, mostOf), leastCalls/2), by: map[string]*address{}, open: map[*connection]struct{}{}}
}

// connection is one that was accepted.
type connection struct {
	net.Conn
	owner   *Connections
	from    string
	reserve bool
	left    sync.Once
	between atomic.Bool // it had a call between nodes

	idle      time.Time // since when; zero while it has a request; of owner.mu
	resets    atomic.Int64
	resetsEnd atomic.Int64 // of the second that they are counted in, Unix ns

	counting sync.Mutex
	gone     func() // of CountConnection; nil until it is counted
	ended    bool   // the server has done with it
}

// ClientOf is what of a remote address, host:port, is one client's: the IP
// address, or the network of 64 bits that one client has of IPv6. It is empty
// for other addresses.
func ClientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return network.ClientOf(net.TCPAddrFromAddrPort(at))
}

// Listen wraps a listener so that connections are shared out.
func (s *Connections) Listen(l net.Listener) net.Listener { return sharedListener{l, s} }

type sharedListener struct {
	net.Listener
	owner *Connections
}

func (l sharedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, gone := l.owner.admit(conn, time.Now())
		if gone != nil {
			gone.Close()
		}
		if c != nil {
			return c, nil
		}
		conn.Close()
	}
}

// admit takes a connection in, or returns nil. What it returns as gone makes
// room and is to be closed.
func (s *Connections) admit(conn net.Conn, now time.Time) (in, gone *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &connection{Conn: conn, owner: s, from: network.ClientOf(conn.RemoteAddr()), idle: now}
	a := s.by[c.from]
	if a == nil {
		a = &address{conns: map[*connection]struct{}{}}
		s.by[c.from] = a
	}
	switch {
	case len(a.conns) >= s.mostOf:
		gone = a.idlest()
	case s.total >= s.most:
		if gone = s.largest().idlest(); gone == nil {
			gone = s.idlest()
		}
	}
	if gone != nil {
		s.closed.Add(1)
		s.forget(gone)
	}
	switch {
	case len(a.conns) < s.mostOf && s.total < s.most:
		a.conns[c] = struct{}{}
		s.total++
	case a.reserved < reservedAddressConns && s.reserved < reservedConns:
		c.reserve = true
		a.reserved++
		s.reserved++
	default:
		s.closed.Add(1)
		s.drop(c.from)
		return nil, gone
	}
	s.by[c.from] = a // forget may have dropped it
	return c, gone
}

// largest is the address with the most connections.
func (s *Connections) largest() (most *address) {
	for _, a := range s.by {
		if most == nil || len(a.conns) > len(most.conns) {
			most = a
		}
	}
	return most
}

// idlest is the connection that was idle for longest of all, nil where none is.
func (s *Connections) idlest() (longest *connection) {
	for _, a := range s.by {
		if c := a.idlest(); c != nil && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	return longest
}

// idlest is the connection that was idle for longest, nil where none is.
func (a *address) idlest() (longest *connection) {
	for c := range a.conns {
		if !c.idle.IsZero() && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	return longest
}

// forget takes a connection off the counts, once.
func (s *Connections) forget(c *connection) {
	c.left.Do(func() {
		a := s.by[c.from]
		if c.reserve {
			a.reserved--
			s.reserved--
		} else {
			delete(a.conns, c)
			s.total--
		}
		s.drop(c.from)
	})
}

// drop forgets an address that has nothing left.
func (s *Connections) drop(from string) {
	if a := s.by[from]; a != nil && len(a.conns) == 0 && a.reserved == 0 && a.streams == 0 && a.calls == 0 {
		delete(s.by, from)
	}
}

// Close closes the connection and gives its place back.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.forget(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is what the connection lies on.
func (c *connection) NetConn() net.Conn { return c.Conn }

// of is the connection that a server's lies on: the server sees TLS.
func of(conn net.Conn) (*connection, bool) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*connection)
	return c, ok
}

// State follows what the server does with a connection.
func (s *Connections) State(conn net.Conn, state http.ConnState) {
	c, ok := of(conn)
	if !ok {
		return
	}
	if state == http.StateClosed || state == http.StateHijacked {
		c.uncount()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.open[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
	case http.StateActive:
		c.idle = time.Time{}
	case http.StateIdle:
		c.idle = time.Now()
	}
}

// CloseAll closes those that are open. The server takes note of each by itself.
func (s *Connections) CloseAll() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// CloseInternal closes those that had a call between nodes.
func (s *Connections) CloseInternal() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, c := range open {
		if c.between.Load() {
			c.Close()
		}
	}
}

// Closed counts those that had to make room or got none, and those that were
// closed for resets.
func (s *Connections) Closed() uint64 { return s.closed.Load() }

// connectionKey is the context's key for the *connection of a request.
type connectionKey struct{}

// ConnContext makes a request know its connection.
func (s *Connections) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := of(conn); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// CountConnection has the connection of a request counted, by take, until it
// ends, when what take returned is called. Once it is counted take is not
// called again; a nil func has not counted it.
func CountConnection(ctx context.Context, take func() (gone func(), err error)) error {
	c, of := ctx.Value(connectionKey{}).(*connection)
	if !of {
		return nil
	}
	c.counting.Lock()
	defer c.counting.Unlock()
	if c.gone != nil || c.ended {
		return nil
	}
	var err error
	c.gone, err = take()
	return err
}

// uncount takes note that the connection has ended.
func (c *connection) uncount() {
	c.counting.Lock()
	gone := c.gone
	c.gone, c.ended = nil, true
	c.counting.Unlock()
	if gone != nil {
		gone()
	}
}

// stream takes one of the at most limit streams of a caller's address; leave
// gives it back. Other nodes, which ask for callers of theirs, have no limit.
func (s *Connections) stream(ctx context.Context, limit int) (leave func(), ok bool) {
	c, of := ctx.Value(connectionKey{}).(*connection)
	if !of || leaderproxy.FromPeer(ctx) {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.by[c.from]
	if a == nil { // its connection was closed
		return func() {}, true
	}
	if a.streams >= limit {
		return nil, false
	}
	a.streams++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.streams--
		s.drop(c.from)
	}), true
}

// enterCall takes one of the calls that there may be at a time; leave gives it
// back.
func (s *Connections) enterCall(c *connection) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.by[c.from]
	if a == nil { // its connection was closed
		return func() {}, true
	}
	if s.calls >= s.mostCalls || a.calls >= s.mostCallsOf {
		s.refused.Add(1)
		return nil, false
	}
	s.calls++
	a.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
		a.calls--
		s.drop(c.from)
	}, true
}

// Wrap answers on connections of the reserve only what they are for, refuses
// calls beyond those that there may be at a time, and ends connections whose clients reset streams without end. A connection of the
// reserve is kept for further calls between nodes alone, and while apart says
// that nodes are served elsewhere for none.
func (s *Connections) Wrap(next http.Handler, internal map[string]http.Handler, apart func() bool) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		isInternal := internalHandler(r, internal) != nil
		if ok && isInternal && !c.between.Load() {
			c.between.Store(true)
		}
		if ok && c.reserve && !isProbe(r) && !isInternal {
			w.Header().Set("Connection", "close")
			refuse.Write(w, r, connect.NewError(connect.CodeUnavailable, errCrowded))
			// What is left of the body is not waited for: the place is for others.
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			return
		}
		once := ok && c.reserve && (!isInternal || apart())
		if once {
			w.Header().Set("Connection", "close")
		}
		if ok && !isInternal && !isProbe(r) {
			leave, ok := s.enterCall(c)
			if !ok {
				refuse.Write(w, r, connect.NewError(connect.CodeResourceExhausted, errBusy))
				return
			}
			defer leave()
		}
		next.ServeHTTP(w, r)
		if once {
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		}
		if ok && r.ProtoMajor == 2 && r.Context().Err() != nil && c.reset(time.Now()) {
			s.closed.Add(1)
			c.Conn.Close()
		}
	})
}

// reset counts a stream that its client has reset, and reports whether they are
// too many.
func (c *connection) reset(now time.Time) bool {
	if end := c.resetsEnd.Load(); now.UnixNano() > end && c.resetsEnd.CompareAndSwap(end, now.Add(time.Second).UnixNano()) {
		c.resets.Store(0)
	}
	return c.resets.Add(1) > maxResets
}

// WatchConnections registers what is known of connections, unless r is nil.
func WatchConnections(r prometheus.Registerer, of ...*Connections) {
	if r == nil {
		return
	}
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "hostd_rpc_connections_closed_total", Help: "Connections closed because there were too many, or for resets of streams without end.",
	}, func() (closed float64) {
		for _, c := range of {
			closed += float64(c.Closed())
		}
		return closed
	}), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "hostd_rpc_calls_refused_total", Help: "Calls refused because there were too many at a time, of all or of their address.",
	}, func() (refused float64) {
		for _, c := range of {
			refused += float64(c.refused.Load())
		}
		return refused
	}))
}
