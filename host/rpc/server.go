package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/console"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/plainhttp"
	"github.com/hostd/hostd/host/rpc/quota"
	"github.com/hostd/hostd/host/stall"
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
	// Remarks is what /readyz says of a node that is ready and does not serve
	// everything, in a line; empty is nothing. A nil func has none.
	Remarks func() string
	// Opened says why the node can take no RPC at all yet, or nil; before that
	// only Initialize, /livez, /readyz and /metrics and what is Internal are
	// served. A nil func is always open.
	Opened func() error
	// Cluster is the id of the node's cluster, empty while it has none. Answers
	// name it, and calls that name another are refused. A nil func is no id.
	Cluster func() string
	// Pauses tells what arrived before the process stood still: it is refused.
	// Without it there are none.
	Pauses admission.Pauses
	// Hosts are the names, in lower case and without ports, by which the node may
	// be called besides IP addresses and localhost; without any it may be by all.
	Hosts []string
	// Origins are those whose pages may call the node, such as
	// https://app.example, beside its own; admission.AnyOrigin is all.
	Origins []string
	// Debug has profiles of the process served to clients on this machine.
	Debug bool
	// Console has the web console served to clients.
	Console bool
	// HealthHosts are those of the listener for health.
	HealthHosts []string
	// Auth says who calls, before anything else of what is not Internal; nil asks
	// nobody.
	Auth *authn.Authenticator
	// Roles decide what callers may do, once they are known; nil lets whoever is
	// let in do everything.
	Roles *authorize.Authorizer
	// Quotas bound what callers may have; nil bounds nobody.
	Quotas *quota.Quotas
	// Audit writes who calls what; nil writes nothing.
	Audit *audit.Calls
	// Traces makes a span of every call; nil makes none.
	Traces connect.Interceptor
	// Internal are the services between nodes, by the prefix of their paths. The
	// peers' listener has these alone.
	Internal map[string]http.Handler
	// Certificates are those of the clients' listener; nil takes calls without
	// TLS alone. With TLSOnly calls without it are refused, but for Internal and
	// probes of health.
	Certificates *certs.Reloader
	TLSOnly      bool
	// PeerCertificates are those of the peers' listener, whose handshakes are
	// over where a connection is accepted; nil without TLS.
	PeerCertificates *certs.Peers
	// PeersAt is where other nodes reach the peers' listener, host:port, once
	// the clients' listener is for clients alone: it answers 404 to what is
	// Internal then, and says so. Empty, or a nil func: it serves other nodes too.
	PeersAt func() string

	// DefaultDeadline is given to calls that bring none (5 s), MaxDeadline is
	// the most a call can have (30 s).
	DefaultDeadline time.Duration
	MaxDeadline     time.Duration
	// MaxMessageBytes bounds a message (1 MiB), MaxUploadBytes a message with
	// a module (32 MiB).
	MaxMessageBytes int
	MaxUploadBytes  int
	// MaxUploads bounds uploads at a time (2), of which one is of an address: each
	// holds a module in memory. Some more wait for their turn.
	MaxUploads int
	// MaxConns bounds connections (4,096), MaxAddressConns those of an address
	// (half). Idle ones make room for others; beyond them the node answers
	// probes of health and other nodes.
	MaxConns        int
	MaxAddressConns int
	// MaxPeerConns bounds those of the peers' listener (512), which clients have
	// no part in. Half of them are one address's at most.
	MaxPeerConns int
	// MaxHealthConns bounds those of the listener for health (64).
	MaxHealthConns int
	// MaxStreams bounds the long-lived streams of the node (1,024),
	// MaxAddressStreams those of an address (half), and
	// MaxStreamInFlight the commands of one that are read and not yet
	// answered (4,096): the server stops reading there.
	MaxStreams        int
	MaxAddressStreams int
	MaxStreamInFlight int
	// MaxStreamBytes bounds the bytes of one stream's messages that are read and
	// that the runtime has not let go of (16 MiB): the server stops reading
	// there. One message is always read.
	MaxStreamBytes int
	// MaxWaitingBytes bounds those of all streams and calls (256 MiB); what would
	// be more is answered with a *admission.WaitingBytesError. It must be no less
	// than MaxMessageBytes.
	MaxWaitingBytes int
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
	if o.PeersAt == nil {
		o.PeersAt = func() string { return "" }
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Remarks == nil {
		o.Remarks = func() string { return "" }
	}
	if o.Pauses == nil {
		o.Pauses = (*stall.PauseWatch)(nil)
	}
	duration(&o.DefaultDeadline, 5*time.Second)
	duration(&o.MaxDeadline, 30*time.Second)
	duration(&o.WriteStall, 30*time.Second)
	number(&o.MaxMessageBytes, 1<<20)
	number(&o.MaxUploadBytes, 32<<20)
	number(&o.MaxUploads, 2)
	number(&o.MaxConns, 4096)
	number(&o.MaxAddressConns, (o.MaxConns+1)/2)
	number(&o.MaxPeerConns, 512)
	number(&o.MaxHealthConns, 64)
	number(&o.MaxStreams, 1024)
	number(&o.MaxAddressStreams, (o.MaxStreams+1)/2)
	number(&o.MaxStreamInFlight, 4096)
	number(&o.MaxStreamBytes, 16<<20)
	number(&o.MaxWaitingBytes, 256<<20)
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
		{"MaxConns", o.MaxConns}, {"MaxAddressConns", o.MaxAddressConns}, {"MaxPeerConns", o.MaxPeerConns}, {"MaxHealthConns", o.MaxHealthConns}, {"MaxStreams", o.MaxStreams}, {"MaxAddressStreams", o.MaxAddressStreams}, {"MaxStreamInFlight", o.MaxStreamInFlight},
		{"MaxStreamBytes", o.MaxStreamBytes}, {"MaxWaitingBytes", o.MaxWaitingBytes},
		{"DefaultDeadline", int(o.DefaultDeadline)}, {"MaxDeadline", int(o.MaxDeadline)}, {"WriteStall", int(o.WriteStall)},
	} {
		if n.value < 0 {
			faults = append(faults, fmt.Errorf("%s is negative", n.name))
		}
	}
	if d := o.withDefaults(); d.DefaultDeadline > d.MaxDeadline {
		faults = append(faults, errors.New("DefaultDeadline is above MaxDeadline"))
	}
	if d := o.withDefaults(); d.MaxWaitingBytes < d.MaxMessageBytes {
		faults = append(faults, errors.New("MaxWaitingBytes is below MaxMessageBytes"))
	}
	return errors.Join(faults...)
}

// Server serves the public API to clients, and on listeners of their own other
// nodes, and those who ask how the node is. It is made by NewServer.
type Server struct {
	clients  *face
	peers    *face
	health   *face
	forPeers http.Handler
	guard    *admission.Streams
	modules  *moduleService
}

// NewServer makes a server; it starts nothing. The options must be valid.
func NewServer(deps Deps, opts Options) *Server {
	opts = opts.withDefaults()
	clients := admission.NewConnections(opts.MaxConns, opts.MaxAddressConns)
	peers := admission.NewConnections(opts.MaxPeerConns, (opts.MaxPeerConns+1)/2)
	s := &Server{guard: admission.NewStreams(opts.MaxStreams, opts.MaxAddressStreams, opts.WriteStall, clients)}
	admission.WatchConnections(opts.Registerer, clients, peers)
	waiting := admission.NewWaiting(int64(opts.MaxWaitingBytes))
	public, modules := newHandler(deps, opts, s.guard, waiting)
	s.modules = modules
	fresh := admission.NewArrivals(opts.Pauses)
	internal := map[string]http.Handler{} // no page calls it
	for prefix, h := range opts.Internal {
		internal[prefix] = admission.Origins(h, opts.Hosts, nil)
	}
	gate := admission.Gate{Opened: opts.Opened, Cluster: opts.Cluster, Internal: admission.Referring(internal, opts.PeersAt)}
	if opts.Auth != nil {
		gate.Authenticate = func(next http.Handler) http.Handler {
			if opts.Quotas != nil {
				next = opts.Quotas.Connections(opts.Logger, next)
			}
			return opts.Auth.Wrap(next, admission.ClientOf)
		}
	}
	calls := plainhttp.Wrap(gate.Wrap(fresh.Wrap(public)), plainhttp.Options{Encoding: encodings{deps.Types}.Encoding, Shards: deps.Entity.Entities.Shards, MaxBytes: opts.MaxMessageBytes, Budget: waiting})
	served := admission.CrossOrigin(admission.Origins(calls, opts.Hosts, opts.Origins), opts.Origins)
	if opts.Console {
		served = console.Wrap(served)
	}
	if opts.Certificates != nil {
		served = opts.Certificates.Wrap(served)
	}
	if opts.TLSOnly {
		served = admission.Encrypted(served, opts.Internal)
	}
	apart, together := func() bool { return opts.PeersAt() != "" }, func() bool { return false }
	s.clients = newFace(opts, opts.Certificates, clients, fresh, clients.Wrap(leaderproxy.Unsaid(served), opts.Internal, apart))
	between := admission.Origins(admission.Only(opts.Internal), opts.Hosts, nil)
	if opts.PeerCertificates != nil {
		between = opts.PeerCertificates.Wrap(between)
	}
	s.peers = newFace(opts, nil, peers, fresh, peers.Wrap(between, opts.Internal, together))
	if opts.PeerCertificates != nil {
		s.peers.know(opts.PeerCertificates.ConnContext)
		s.peers.know(network.WithNode)
	}
	watched := admission.NewConnections(opts.MaxHealthConns, opts.MaxHealthConns)
	about := admission.Health(admission.Gate{Opened: opts.Opened, Cluster: opts.Cluster}.Wrap(fresh.Wrap(public)))
	s.health = newFace(opts, nil, watched, fresh, watched.Wrap(admission.Origins(about, opts.HealthHosts, nil), nil, together))
	s.forPeers = leaderproxy.Handler(admission.Gate{Opened: opts.Opened}.Wrap(public))
	return s
}

// Handler is what clients are served, for tests and for other listeners.
func (s *Server) Handler() http.Handler { return s.clients.http.Handler }

// ForPeers serves, at leaderproxy.Path, what other nodes ask for their callers.
// Options.Internal mounts it behind the check that nodes alone may call.
func (s *Server) ForPeers() http.Handler { return s.forPeers }

// Serve accepts connections of clients until Shutdown, and then returns nil. It
// closes the listener.
func (s *Server) Serve(l net.Listener) error { return s.clients.serve(l) }

// ServePeers is Serve for connections of other nodes.
func (s *Server) ServePeers(l net.Listener) error { return s.peers.serve(l) }

// ServeHealth is Serve for connections on which the node answers how it is, and
// nothing else. It asks nobody who calls, and speaks no TLS.
func (s *Server) ServeHealth(l net.Listener) error { return s.health.serve(l) }

// Break closes every connection that is open, and goes on accepting others. Who
// waits for an answer asks elsewhere.
func (s *Server) Break() {
	s.clients.conns.CloseAll()
	s.peers.conns.CloseAll()
	s.health.conns.CloseAll()
}

// Part closes the connections of the clients' listener that other nodes have
// used. It follows a change of Options.PeerEndpoint.
func (s *Server) Part() { s.clients.conns.CloseInternal() }

// Cut closes the listeners and every connection at once.
func (s *Server) Cut() {
	s.clients.http.Close()
	s.peers.http.Close()
	s.health.http.Close()
}

// Shutdown stops accepting, lets calls in flight finish, ends streams once
// what they have read is answered, and returns when all are done. When ctx
// ends first, it cuts what is left and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.guard.StopAll()
	return errors.Join(s.clients.shutdown(ctx), s.peers.shutdown(ctx), s.health.shutdown(ctx))
}
