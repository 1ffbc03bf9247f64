package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/rpc/admission"
)

// face is what the server is to one kind of callers: their handler, on
// connections that the other kind has no part in.
type face struct {
	http  *http.Server
	conns *admission.Connections
	fresh admission.Arrivals
	certs *certs.Reloader // nil without TLS
}

// newFace makes a face that takes TLS too where there are certificates.
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
		// Long-lived streams lift these two for themselves.
		ReadTimeout:    opts.MaxDeadline + 5*time.Second,
		WriteTimeout:   2*opts.MaxDeadline + 5*time.Second,
		IdleTimeout:    60 * time.Second,
		MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// Room for the messages under way on a fast stream, so that window
			// updates do not pace it.
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4 << 20,
			SendPingTimeout:               15 * time.Second,
			PingTimeout:                   15 * time.Second,
			WriteByteTimeout:              opts.WriteStall,
		},
	}}
}

// know has requests know more of their connection.
func (f *face) know(more func(context.Context, net.Conn) context.Context) {
	inner := f.http.ConnContext
	f.http.ConnContext = func(ctx context.Context, conn net.Conn) context.Context { return more(inner(ctx, conn), conn) }
}

// serve accepts connections until shutdown, and then returns nil.
func (f *face) serve(l net.Listener) error {
	shared := f.conns.Listen(f.fresh.Listen(l))
	if f.certs != nil {
		// The server looks for TLS at what it accepts, so nothing lies above it.
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
