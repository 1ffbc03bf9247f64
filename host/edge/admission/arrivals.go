package admission

import (
	"context"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/status"
)

// Pauses reports pauses of the process, such as a suspended virtual machine; a
// *stall.PauseWatch implements it.
type Pauses interface {
	// Epoch counts the pauses.
	Epoch() uint64
	// Settling reports whether a pause has just ended.
	Settling() bool
}

// ErrPaused rejects a request that arrived before a pause of the process. Its
// caller has given up on it, and may have had it executed by a different node so
// long ago that the idempotency window no longer contains its command id. The
// request therefore must not run here.
var ErrPaused = status.New(connect.CodeUnavailable, "the node was stalled while it received the request; retry")

// Arrivals detects requests on connections that are older than the last pause of
// the process, because all or part of such a request may have waited in the
// kernel during the pause.
type Arrivals struct{ watch Pauses }

// NewArrivals makes an Arrivals that uses the pauses of watch.
func NewArrivals(watch Pauses) Arrivals { return Arrivals{watch} }

// epochKey is the context key of the epoch in which a connection was accepted.
type epochKey struct{}

// ConnContext records the epoch in which a connection was accepted.
func (a Arrivals) ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, epochKey{}, a.watch.Epoch())
}

// Check fails with ErrPaused if the connection of ctx was accepted before a
// pause.
func (a Arrivals) Check(ctx context.Context) error {
	if came, ok := ctx.Value(epochKey{}).(uint64); ok && came != a.watch.Epoch() {
		return ErrPaused
	}
	return nil
}

// Wrap rejects requests on connections from before a pause, and has the
// connections closed.
func (a Arrivals) Wrap(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.Check(r.Context()); err != nil {
			w.Header().Set("Connection", "close") // sent as GOAWAY over HTTP/2
			refuse.Write(w, r, connect.NewError(connect.CodeUnavailable, err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Listen wraps a listener so that it closes connections that the kernel accepted
// before or during a pause.
func (a Arrivals) Listen(l net.Listener) net.Listener { return freshListener{l, a.watch} }

type freshListener struct {
	net.Listener
	watch Pauses
}

func (l freshListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.watch.Settling() {
			return conn, err
		}
		conn.Close()
	}
}
