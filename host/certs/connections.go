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

// Grace is how long a connection lives on whose client is not believed any
// more: its next answer asks the client to open another one, so that nothing
// under way is lost.
const Grace = 30 * time.Second

// sweepEvery is how often connections are looked at whose grace may be over.
const sweepEvery = 5 * time.Second

// errDistrusted ends a handshake, also one that began before an authority was
// removed.
var errDistrusted = errors.New("the certificate is not believed")

// connections are those of the port that are open, by what lies below TLS.
type connections struct {
	mu  sync.Mutex
	all map[net.Conn]*connection
}

// connection is one of them.
type connection struct {
	below   net.Conn
	chain   []*x509.Certificate // what the other side showed; none before the handshake, or where it showed none
	node    string              // that the chain names; empty for clients
	until   time.Time           // end of its grace, where it is retired
	retired atomic.Bool
}

func (o *connections) init() { o.all = map[net.Conn]*connection{} }

// connectionKey is the context's key for the *connection of a request.
type connectionKey struct{}

// ConnContext is for http.Server: it begins to follow a connection.
func (r *Reloader) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, connectionKey{}, r.follow(t.NetConn()))
}

// follow begins to follow a connection, forget ends it.
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

// State is for http.Server: it forgets connections that are closed.
func (r *Reloader) State(conn net.Conn, state http.ConnState) {
	t, ok := conn.(*tls.Conn)
	if !ok || state != http.StateClosed && state != http.StateHijacked {
		return
	}
	r.forget(t.NetConn())
}

// Wrap has clients leave connections that are closed soon.
func (r *Reloader) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if e, ok := q.Context().Value(connectionKey{}).(*connection); ok && e.retired.Load() {
			w.Header().Set("Connection", "close") // over HTTP/2 it says GOAWAY
		}
		next.ServeHTTP(w, q)
	})
}

// verified notes what the other side has shown. The authorities may have
// changed since its handshake began.
func (r *Reloader) verified(below net.Conn, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return nil
	}
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	// Who changes the authorities looks at the connections after that, under
	// this lock: one of the two finds it.
	if err := r.role.verify(r.current.Load().material, chain, r.opts.Now()); err != nil {
		return fmt.Errorf("%w: %w", errDistrusted, err)
	}
	if e := r.open.all[below]; e != nil {
		e.chain = chain
	}
	return nil
}

// names notes the node on the other side of a connection.
func (r *Reloader) names(e *connection, node string) {
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	e.node = node
}

// CloseNode closes every connection with a node at once, whoever has made it,
// and returns their number.
func (p *Peers) CloseNode(node string) int {
	return p.open.closeAll(func(e *connection) bool { return e.node == node })
}

// closeAll closes the connections for which a condition holds.
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

// retire gives the connections whose client is not to be believed their grace,
// and returns their number.
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

// closeRetired closes those whose grace is over. The server takes note by
// itself.
func (o *connections) closeRetired(now time.Time) {
	o.closeAll(func(e *connection) bool { return e.retired.Load() && !now.Before(e.until) })
}
