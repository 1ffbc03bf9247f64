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

	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/network"
)

// Limits of connections in addition to the limits that are passed to
// NewConnections.
const (
	reservedConns        = 256 // reserve connections in addition to the maximum
	reservedAddressConns = 32
	// maxResets limits the streams that a client may reset per second on one
	// connection, because each reset stream has already cost a handler.
	maxResets = 1000
	// callsEach and leastCalls limit concurrent calls: callsEach for each
	// allowed connection, but at least leastCalls, whichever connections they
	// are on. A call needs about 20 KB before its message is read, so HTTP/2's
	// 250 streams on every connection would need many times the memory of a
	// node.
	callsEach  = 4
	leastCalls = 1024
)

// errBusy is the error for a call over the limit of concurrent calls.
var errBusy = errors.New("the node has too many concurrent calls in total or from this address; retry after a moment")

// errCrowded is the error for a call on a reserve connection.
var errCrowded = errors.New("the node has too many connections in total or from this address: close some")

// Connections limits the connections of a server and shares them fairly between
// client addresses. It is safe for concurrent use.
//
// One limit for all clients would let a single client occupy the whole server,
// and a limit for each address alone would not bound the total. So there are
// both limits, and a new connection over a limit does not simply fail: the
// connection that has been idle for longest is closed to make room, because
// clients keep idle connections in pools and reopen them without an error.
// If the address of the new connection is at its limit, a connection of the
// same address is closed. If the server is at its limit, a connection of the
// address with the most connections is closed, if one of these is idle.
//
// If no connection is idle, a small reserve admits more connections. On the
// reserve connections the node answers only health probes and, if this
// listener serves them, calls between nodes. So a node that is overloaded by
// clients is not mistaken for a failed one. Connections beyond the reserve
// are closed immediately.
//
// The number of calls is limited separately, because HTTP/2 allows many
// calls on each connection, and each call needs memory before its message is
// read.
type Connections struct {
	most, mostOf           int
	mostCalls, mostCallsOf int

	refused atomic.Uint64 // calls
	closed  atomic.Uint64 // connections closed to make room, or not admitted

	mu       sync.Mutex
	total    int
	calls    int
	reserved int
	by       map[string]*address
	open     map[*connection]struct{}
}

// address is the state of one client address: an IPv4 address, or an IPv6 /64
// network, because one client can use all addresses of such a network.
type address struct {
	owner    *Connections
	from     string
	conns    map[*connection]struct{} // except reserve connections
	reserved int
	streams  int // open streams, for Streams
	calls    int // calls in progress

	// waiting is the number of bytes that the requests of the address hold of a
	// Waiting, which may be after its last connection was closed. unused is set
	// if nothing else keeps the address.
	waiting atomic.Int64
	unused  atomic.Bool
}

// give returns n bytes, and drops the address if these were the last and nothing
// else keeps it. drop sets unused before it reads waiting, and give reads unused
// after it has changed waiting, so at least one of them sees that the address is
// no longer needed.
func (a *address) give(n int64) {
	if a.waiting.Add(-n) == 0 && a.unused.Load() {
		a.owner.mu.Lock()
		a.owner.drop(a.from)
		a.owner.mu.Unlock()
	}
}

// NewConnections allows most connections in total and mostOf connections from
// one address. A small reserve is added to both.
func NewConnections(most, mostOf int) *Connections {
	return &Connections{most: most, mostOf: min(most, mostOf), mostCalls: max(callsEach*most, leastCalls), mostCallsOf: max(callsEach*min(most, mostOf), leastCalls/2), by: map[string]*address{}, open: map[*connection]struct{}{}}
}

// connection is an accepted connection.
type connection struct {
	net.Conn
	owner   *Connections
	from    string
	address *address // of from
	reserve bool
	left    sync.Once
	between atomic.Bool // it has carried a call between nodes

	idle      time.Time // start of the idle time; zero while it has a request; protected by owner.mu
	resets    atomic.Int64
	resetsEnd atomic.Int64 // end of the second in which resets are counted, in Unix ns

	counting sync.Mutex
	gone     func() // from CountConnection; nil until the connection is counted
	ended    bool   // the server has closed it
}

// ClientOf returns the part of a remote address, host:port, that identifies a
// client: the IPv4 address, or the IPv6 /64 network. It returns "" for other
// addresses.
func ClientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return network.ClientOf(net.TCPAddrFromAddrPort(at))
}

// Listen wraps a listener so that s admits its connections.
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

// admit admits a connection, or returns nil. The caller must close gone, the
// connection that was removed to make room, if it is not nil.
func (s *Connections) admit(conn net.Conn, now time.Time) (in, gone *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &connection{Conn: conn, owner: s, from: network.ClientOf(conn.RemoteAddr()), idle: now}
	a := s.by[c.from]
	if a == nil {
		a = &address{owner: s, from: c.from, conns: map[*connection]struct{}{}}
		s.by[c.from] = a
	}
	a.unused.Store(false)
	c.address = a
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

// largest returns the address with the most connections.
func (s *Connections) largest() (most *address) {
	for _, a := range s.by {
		if most == nil || len(a.conns) > len(most.conns) {
			most = a
		}
	}
	return most
}

// idlest returns the connection that has been idle for longest; nil if none is
// idle.
func (s *Connections) idlest() (longest *connection) {
	for _, a := range s.by {
		if c := a.idlest(); c != nil && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	return longest
}

// idlest returns the connection of the address that has been idle for longest;
// nil if none is idle.
func (a *address) idlest() (longest *connection) {
	for c := range a.conns {
		if !c.idle.IsZero() && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	return longest
}

// forget removes a connection from the counts, once.
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

// drop deletes an address that has no connections, streams, calls or waiting
// bytes.
func (s *Connections) drop(from string) {
	a := s.by[from]
	if a == nil || len(a.conns) != 0 || a.reserved != 0 || a.streams != 0 || a.calls != 0 {
		return
	}
	if a.unused.Store(true); a.waiting.Load() == 0 {
		delete(s.by, from)
	}
}

// Close closes the connection and releases its place.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.forget(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the wrapped connection.
func (c *connection) NetConn() net.Conn { return c.Conn }

// of returns the connection that underlies a connection of the server, which may
// be a TLS connection.
func of(conn net.Conn) (*connection, bool) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*connection)
	return c, ok
}

// State tracks the state of a connection in the server; it is an
// http.Server.ConnState func.
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

// CloseAll closes all open connections. The server notices each by itself.
func (s *Connections) CloseAll() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// CloseInternal closes the connections that have carried a call between nodes.
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

// closedCount returns how many connections were closed to make room, not admitted, or
// closed because of stream resets.
func (s *Connections) closedCount() uint64 { return s.closed.Load() }

// connectionKey is the context key of the *connection of a request.
type connectionKey struct{}

// ConnContext makes the connection available in the context of its requests.
func (s *Connections) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := of(conn); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// CountConnection counts the connection of a request with take, and calls gone
// when the connection closes. If the connection is counted already, take is not
// called. A nil gone means that take did not count the connection, so a later
// request tries again.
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

// uncount calls gone, because the connection has closed.
func (c *connection) uncount() {
	c.counting.Lock()
	gone := c.gone
	c.gone, c.ended = nil, true
	c.counting.Unlock()
	if gone != nil {
		gone()
	}
}

// stream occupies one of the at most limit streams of a caller's address; leave
// releases it. Calls that other nodes forward for their callers have no limit.
func (s *Connections) stream(ctx context.Context, limit int) (leave func(), ok bool) {
	c, of := ctx.Value(connectionKey{}).(*connection)
	if !of || leaderproxy.FromPeer(ctx) {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.by[c.from]
	if a == nil { // the connection was closed
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

// enterCall occupies one of the allowed concurrent calls; leave releases it.
func (s *Connections) enterCall(c *connection) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.by[c.from]
	if a == nil { // the connection was closed
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

// Wrap serves only probes and internal calls on reserve connections, rejects
// calls over the limit of concurrent calls, and closes connections whose clients
// reset too many streams. A reserve connection is closed after its first
// request, unless that request is a call between nodes and apart reports
// that nodes have no separate listener.
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
			// Do not wait for the rest of the body, because other clients
			// need the connection's place.
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

// reset counts a stream that the client has reset, and reports whether there
// were too many.
func (c *connection) reset(now time.Time) bool {
	if end := c.resetsEnd.Load(); now.UnixNano() > end && c.resetsEnd.CompareAndSwap(end, now.Add(time.Second).UnixNano()) {
		c.resets.Store(0)
	}
	return c.resets.Add(1) > maxResets
}

// WatchConnections registers the metrics of connections, unless r is nil.
func WatchConnections(r prometheus.Registerer, of ...*Connections) {
	if r == nil {
		return
	}
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "hostd_rpc_connections_closed_total", Help: "Connections closed because there were too many, or because they kept resetting streams.",
	}, func() (closed float64) {
		for _, c := range of {
			closed += float64(c.closedCount())
		}
		return closed
	}), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "hostd_rpc_calls_rejected_total", Help: "Calls rejected because there were too many concurrent ones, in total or from their address.",
	}, func() (refused float64) {
		for _, c := range of {
			refused += float64(c.refused.Load())
		}
		return refused
	}))
}
