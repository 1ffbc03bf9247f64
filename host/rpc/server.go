package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"

	"github.com/hostd/hostd/host/pause"
	"github.com/hostd/hostd/sharding"
)

// Options bound and name a server. The zero value of a number means its
// default.
type Options struct {
	// NodeID names this node in answers.
	NodeID sharding.NodeID
	// Logger gets what operators should see; nil discards it.
	Logger *slog.Logger
	// Admin lets callers change the cluster; without it such calls answer
	// permission_denied.
	Admin bool
	// Metrics answers /metrics; nil answers 404.
	Metrics http.Handler
	// Registerer gets the server's own metrics; nil drops them.
	Registerer prometheus.Registerer
	// Ready says why the node cannot serve yet, or nil; it answers /readyz and
	// the health service. A nil func is always ready.
	Ready func() error
	// Opened says why the node can take no RPC at all yet, or nil; before that
	// only /livez, /readyz and /metrics and what is Internal are served. A nil
	// func is always open.
	Opened func() error
	// Pauses tells what arrived before the process stood still: it is refused.
	// Without it there are none.
	Pauses Pauses
	// Internal are the services between nodes, by the prefix of their paths.
	Internal map[string]http.Handler

	// DefaultDeadline is given to calls that bring none (5 s), MaxDeadline is
	// the most a call can have (30 s).
	DefaultDeadline time.Duration
	MaxDeadline     time.Duration
	// MaxMessageBytes bounds a message (1 MiB), MaxUploadBytes a message with
	// a module (32 MiB).
	MaxMessageBytes int
	MaxUploadBytes  int
	// MaxUploads bounds uploads at a time (2): each holds a module in memory.
	MaxUploads int
	// MaxConns bounds connections (4,096); more wait to be accepted.
	MaxConns int
	// MaxStreams bounds the long-lived streams of the node (1,024), and
	// MaxStreamInFlight the commands of one that are read and not yet
	// answered (4,096): the server stops reading there.
	MaxStreams        int
	MaxStreamInFlight int
	// WriteStall is how long a client may leave a message unread (30 s).
	WriteStall time.Duration
}

func (o Options) withDefaults() Options {
	number := func(v *int, standard int) {
		if *v == 0 {
			*v = standard
		}
	}
	duration := func(v *time.Duration, standard time.Duration) {
		if *v == 0 {
			*v = standard
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Pauses == nil {
		o.Pauses = (*pause.Watch)(nil)
	}
	duration(&o.DefaultDeadline, 5*time.Second)
	duration(&o.MaxDeadline, 30*time.Second)
	duration(&o.WriteStall, 30*time.Second)
	number(&o.MaxMessageBytes, 1<<20)
	number(&o.MaxUploadBytes, 32<<20)
	number(&o.MaxUploads, 2)
	number(&o.MaxConns, 4096)
	number(&o.MaxStreams, 1024)
	number(&o.MaxStreamInFlight, 4096)
	return o
}

// Validate joins all faults of the options.
func (o Options) Validate() error {
	var faults []error
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxMessageBytes", o.MaxMessageBytes}, {"MaxUploadBytes", o.MaxUploadBytes}, {"MaxUploads", o.MaxUploads},
		{"MaxConns", o.MaxConns}, {"MaxStreams", o.MaxStreams}, {"MaxStreamInFlight", o.MaxStreamInFlight},
		{"DefaultDeadline", int(o.DefaultDeadline)}, {"MaxDeadline", int(o.MaxDeadline)}, {"WriteStall", int(o.WriteStall)},
	} {
		if n.value < 0 {
			faults = append(faults, fmt.Errorf("%s is negative", n.name))
		}
	}
	if d := o.withDefaults(); d.DefaultDeadline > d.MaxDeadline {
		faults = append(faults, errors.New("DefaultDeadline is above MaxDeadline"))
	}
	return errors.Join(faults...)
}

// Server serves the public API. It is made by NewServer.
type Server struct {
	handler http.Handler
	hop     http.Handler
	http    *http.Server
	guard   *streamGuard
	opts    Options
}

// NewServer makes a server; it starts nothing. The options must be valid.
func NewServer(deps Deps, opts Options) *Server {
	opts = opts.withDefaults()
	s := &Server{opts: opts, guard: newStreamGuard(opts.MaxStreams, opts.WriteStall)}
	public := newHandler(deps, opts, s.guard)
	fresh := arrivals{opts.Pauses}
	s.handler, s.hop = gate(fresh.wrap(public), opts), hop(public, opts)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:           s.handler,
		Protocols:         protocols,
		ConnContext:       fresh.connContext,
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
	}
	return s
}

// Handler is what the server serves, for tests and for other listeners.
func (s *Server) Handler() http.Handler { return s.handler }

// Hop serves, at HopPath, what other nodes ask for their callers. Options.Internal
// mounts it behind the check that nodes alone may call.
func (s *Server) Hop() http.Handler { return s.hop }

// Serve accepts connections until Shutdown, and then returns nil. It closes
// the listener.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(netutil.LimitListener(arrivals{s.opts.Pauses}.listen(l), s.opts.MaxConns))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

// Shutdown stops accepting, lets calls in flight finish, ends streams once
// what they have read is answered, and returns when all are done. When ctx
// ends first, it cuts what is left and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.guard.stopAll()
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}
