package admission

import (
	"context"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/status"
)

// Pauses tells of the times that the process stood still, as a *stall.PauseWatch
// does.
type Pauses interface {
	// Epoch counts them.
	Epoch() uint64
	// Settling: one has just ended.
	Settling() bool
}

// ErrPaused refuses what arrived before the process stood still. Its caller
// has given it up, and may have had it done by another node so long ago that
// its command id is forgotten. Nothing of it runs here.
var ErrPaused = status.New(connect.CodeUnavailable, "the node stood still after this was sent; send it again")

// Arrivals tells what arrived on a connection that is older than the last
// pause of the process: that may have waited in the kernel, in part or whole.
type Arrivals struct{ watch Pauses }

// NewArrivals goes by what watch tells.
func NewArrivals(watch Pauses) Arrivals { return Arrivals{watch} }

// epochKey is the context's key for the epoch in which a connection came.
type epochKey struct{}

// ConnContext notes when a connection came.
func (a Arrivals) ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, epochKey{}, a.watch.Epoch())
}

// Check fails with ErrPaused for what came before a pause.
func (a Arrivals) Check(ctx context.Context) error {
	if came, ok := ctx.Value(epochKey{}).(uint64); ok && came != a.watch.Epoch() {
		return ErrPaused
	}
	return nil
}

// Wrap refuses what comes on old connections, and has them closed.
func (a Arrivals) Wrap(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.Check(r.Context()); err != nil {
			w.Header().Set("Connection", "close") // over HTTP/2 it says GOAWAY
			refuse.Write(w, r, connect.NewError(connect.CodeUnavailable, err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Listen wraps a listener so that what the kernel accepted before a pause is
// closed.
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
