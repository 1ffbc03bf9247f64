package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Grace is how long a connection stays open after its client's certificate is
// no longer trusted. During that time, responses ask the client to open another
// connection, so that no call in flight is lost.
const Grace = 30 * time.Second

// sweepEvery is the interval between checks for connections whose grace is
// over.
const sweepEvery = 5 * time.Second

// errDistrusted ends a handshake with an untrusted certificate. That includes a
// handshake that began before the authority was removed.
var errDistrusted = errors.New("the certificate is not trusted")

// connections tracks the open connections of a listener, keyed by the
// connection below TLS.
type connections struct {
	mu  sync.Mutex
	all map[net.Conn]*connection
}

// connection is the state of one connection.
type connection struct {
	below   net.Conn
	chain   []*x509.Certificate // certificates of the other side; nil before the handshake or if it has none
	node    string              // node named by chain; empty for clients
	until   time.Time           // end of the grace period, if retired
	retired atomic.Bool
}

func (o *connections) init() { o.all = map[net.Conn]*connection{} }

// connectionKey is the context key of a request's *connection.
type connectionKey struct{}

// ConnContext is for http.Server. It starts to track a connection.
func (r *Reloader) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, connectionKey{}, r.follow(t.NetConn()))
}

// follow starts to track a connection; forget stops it.
func (r *Reloader) follow(below net.Conn) *connection {
	e := &connection{below: below}
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	r.open.all[below] = e
	return e
}

func (r *Reloader) forget(below net.Conn) {
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	delete(r.open.all, below)
}

// State is for http.Server. It stops tracking closed connections.
func (r *Reloader) State(conn net.Conn, state http.ConnState) {
	t, ok := conn.(*tls.Conn)
	if !ok || state != http.StateClosed && state != http.StateHijacked {
		return
	}
	r.forget(t.NetConn())
}

// Wrap makes clients leave retired connections.
func (r *Reloader) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if e, ok := q.Context().Value(connectionKey{}).(*connection); ok && e.retired.Load() {
			w.Header().Set("Connection", "close") // HTTP/2 sends GOAWAY instead
		}
		next.ServeHTTP(w, q)
	})
}

// storeVerified checks the chain of the other side and stores it. The check is
// needed here, because the authorities may have changed since the handshake
// began.
func (r *Reloader) storeVerified(below net.Conn, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return nil
	}
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	// Reload also looks at the connections under this lock, after it has
	// changed the authorities. So either Reload or this check finds an
	// untrusted connection.
	if err := r.role.verify(r.current.Load().material, chain, r.opts.Now()); err != nil {
		return fmt.Errorf("%w: %w", errDistrusted, err)
	}
	if e := r.open.all[below]; e != nil {
		e.chain = chain
	}
	return nil
}

// names stores the node on the other side of a connection.
func (r *Reloader) names(e *connection, node string) {
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	e.node = node
}

// CloseNode immediately closes all connections with a node, no matter which
// side dialed, and returns their number.
func (p *Peers) CloseNode(node string) int {
	return p.open.closeAll(func(e *connection) bool { return e.node == node })
}

// closeAll closes the connections that meet the condition and returns their
// number.
func (o *connections) closeAll(condition func(*connection) bool) int {
	o.mu.Lock()
	var over []net.Conn
	for _, e := range o.all {
		if condition(e) {
			over = append(over, e.below)
		}
	}
	o.mu.Unlock()
	for _, c := range over {
		c.Close()
	}
	return len(over)
}

// retire starts the grace period of connections with untrusted chains, and
// returns their number.
func (o *connections) retire(distrusted func(*connection) bool, now time.Time) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.all {
		if len(e.chain) == 0 || e.retired.Load() || !distrusted(e) {
			continue
		}
		e.until = now.Add(Grace)
		e.retired.Store(true)
		n++
	}
	return n
}

// closeRetired closes connections whose grace period is over. The server
// notices that by itself.
func (o *connections) closeRetired(now time.Time) {
	o.closeAll(func(e *connection) bool { return e.retired.Load() && !now.Before(e.until) })
}
