package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/edge/admission"
)

// face is what the server offers to one kind of caller (clients, peers or
// health probes): a handler, and a pool of connections that other kinds of
// callers cannot use up.
type face struct {
	http  *http.Server
	conns *admission.Connections
	fresh admission.Arrivals
	certs *certs.Reloader // nil without TLS
}

// newFace makes a face. It accepts TLS too if certificates is not nil.
func newFace(opts Options, certificates *certs.Reloader, conns *admission.Connections, fresh admission.Arrivals, handler http.Handler) *face {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &face{conns: conns, fresh: fresh, certs: certificates, http: &http.Server{
		Handler:   admission.RoomyStack(handler),
		Protocols: protocols,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if certificates != nil {
				ctx = certificates.ConnContext(ctx, conn)
			}
			return conns.ConnContext(fresh.ConnContext(ctx, conn), conn)
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if certificates != nil {
				certificates.State(conn, state)
			}
			conns.State(conn, state)
		},
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: 5 * time.Second,
		// Long-lived streams lift these two timeouts for themselves.
		ReadTimeout:    opts.MaxDeadline + 5*time.Second,
		WriteTimeout:   2*opts.MaxDeadline + 5*time.Second,
		IdleTimeout:    60 * time.Second,
		MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// A fast stream needs a receive window that holds all messages in
			// flight, because otherwise the round trips of window updates limit
			// its throughput.
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4 << 20,
			SendPingTimeout:               15 * time.Second,
			PingTimeout:                   15 * time.Second,
			WriteByteTimeout:              opts.WriteStall,
		},
	}}
}

// know adds a ConnContext function, which attaches more information about the
// connection to the context of its requests.
func (f *face) know(more func(context.Context, net.Conn) context.Context) {
	inner := f.http.ConnContext
	f.http.ConnContext = func(ctx context.Context, conn net.Conn) context.Context { return more(inner(ctx, conn), conn) }
}

// serve accepts connections until shutdown, and then returns nil.
func (f *face) serve(l net.Listener) error {
	shared := f.conns.Listen(f.fresh.Listen(l))
	if f.certs != nil {
		// http.Server detects TLS by the type of the connection that Accept
		// returns, so the TLS listener must be the outermost one.
		shared = certs.Listen(shared, f.certs.Config())
	}
	err := f.http.Serve(shared)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

func (f *face) shutdown(ctx context.Context) error {
	err := f.http.Shutdown(ctx)
	if err != nil {
		f.http.Close()
	}
	return err
}
