package edge

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
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/plainhttp"
	"github.com/hostd/hostd/host/edge/quota"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/stall"
	"github.com/hostd/hostd/sharding"
)

// node is the node that a server serves. No method may block.
type node interface {
	// Ready returns nil if the node can serve, and otherwise the reason why it
	// cannot yet. /readyz and the health service answer from it.
	Ready() error
	// Remarks returns one line that /readyz adds if the node is ready but does
	// not serve everything; empty adds nothing.
	Remarks() string
	// Opened returns nil if the node accepts RPCs, and otherwise the reason why
	// it does not yet. Until then the server answers only InitializeCluster,
	// /livez, /readyz, /metrics and the Internal services.
	Opened() error
	// Cluster returns the id of the node's cluster, or "" while the node has
	// none. Responses carry the id, and calls that name a different cluster are
	// rejected.
	Cluster() string
	// PeersAt returns the host:port at which other nodes reach the peer
	// listener, once the client listener serves clients only. The client
	// listener then answers Internal requests with 404 and that address. If it
	// returns "", the client listener serves other nodes too.
	PeersAt() string
}

// openNode is always open and ready, and has no cluster.
type openNode struct{}

func (openNode) Ready() error    { return nil }
func (openNode) Remarks() string { return "" }
func (openNode) Opened() error   { return nil }
func (openNode) Cluster() string { return "" }
func (openNode) PeersAt() string { return "" }

// Options configure a server and set its limits. A zero number selects the
// default.
type Options struct {
	// NodeID is the id of this node, which responses carry.
	NodeID sharding.NodeID
	// Logger receives messages for operators; nil discards them.
	Logger *slog.Logger
	// Admin allows callers to change the cluster; if it is false, such calls
	// fail with permission_denied.
	Admin bool
	// Metrics serves /metrics; if it is nil, /metrics answers 404.
	Metrics http.Handler
	// Registerer registers the server's own metrics; nil drops them.
	Registerer prometheus.Registerer
	// Node is the node that is served. Nil means one that is always open and
	// ready, and has no cluster.
	Node node
	// Pauses reports when the process was paused. Requests that arrived before a
	// pause are rejected. A nil value means that no pauses are detected.
	Pauses admission.Pauses
	// Hosts are the names, in lower case and without ports, by which the node
	// may be called in addition to IP addresses and localhost. If Hosts is
	// empty, any name is accepted.
	Hosts []string
	// Origins are the origins, such as https://app.example, whose pages may call
	// the node in addition to the node's own origin. admission.AnyOrigin allows
	// all.
	Origins []string
	// Debug serves profiles of the process to clients on this machine.
	Debug bool
	// Console serves the web console to clients.
	Console bool
	// HealthHosts has the same meaning as Hosts, for the health listener.
	HealthHosts []string
	// Auth authenticates callers before anything else is done for a request that
	// is not Internal; nil disables authentication.
	Auth *authn.Authenticator
	// Roles decide what an authenticated caller may do; nil allows every caller
	// that was let in to do everything.
	Roles *authorize.Authorizer
	// Quotas limit what each caller may use; nil sets no limits.
	Quotas *quota.Quotas
	// Audit writes the audit log of calls; nil writes nothing.
	Audit *audit.Calls
	// Traces makes a span for every call; nil makes none.
	Traces connect.Interceptor
	// Internal are the services between nodes, by path prefix. The peer listener
	// serves nothing else.
	Internal map[string]http.Handler
	// Certificates are the certificates of the client listener; if nil, the
	// listener does not speak TLS. If TLSOnly is set, it rejects calls without
	// TLS, except those of Internal services and health probes.
	Certificates *certs.Reloader
	TLSOnly      bool
	// PeerCertificates are the certificates of the peer listener, whose TLS
	// handshake is complete before Accept returns a connection; nil means no
	// TLS.
	PeerCertificates *certs.Peers

	// DefaultDeadline applies to calls that have no deadline (default 5 s).
	// MaxDeadline is the longest deadline that a call can have (default 30 s).
	DefaultDeadline time.Duration
	MaxDeadline     time.Duration
	// MaxMessageBytes limits the size of a message (default 1 MiB),
	// MaxUploadBytes limits a message with a module (default 33 MiB).
	MaxMessageBytes int
	MaxUploadBytes  int
	// MaxUploads limits concurrent uploads (default 2), because each upload
	// holds a module in memory. One address can have only one upload at a
	// time. A few more uploads can wait for their turn.
	MaxUploads int
	// MaxConns limits the client connections (default 4,096), and
	// MaxAddressConns limits the connections of one address (default half of
	// MaxConns). Idle connections are closed to make room for new
	// connections. Beyond the limit the node answers only health probes and
	// other nodes.
	MaxConns        int
	MaxAddressConns int
	// MaxPeerConns limits the connections of the peer listener (default
	// 512). Connections of clients do not count towards this limit. One
	// address can have at most half of MaxPeerConns.
	MaxPeerConns int
	// MaxHealthConns limits the connections of the health listener (default 64).
	MaxHealthConns int
	// MaxStreams limits the long-lived streams of the node (default 1,024),
	// and MaxAddressStreams limits the streams of one address (default half
	// of MaxStreams). MaxStreamInFlight limits the commands of one stream
	// that were read but are not answered yet (default 4,096); at the limit
	// the server stops reading from the stream.
	MaxStreams        int
	MaxAddressStreams int
	MaxStreamInFlight int
	// MaxStreamBytes limits the bytes of one stream's messages that were read
	// and that the runtime has not released yet (default 16 MiB); at the limit
	// the server stops reading from the stream. One message is always read,
	// whatever its size.
	MaxStreamBytes int
	// MaxWaitingBytes limits these bytes for all streams and calls together
	// (default 256 MiB). A request that would exceed it fails with
	// *admission.WaitingBytesError. It must be at least MaxMessageBytes.
	MaxWaitingBytes int
	// WriteStall is how long a client may leave a message unread before the
	// server resets its stream (default 30 s).
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
	if o.Node == nil {
		o.Node = openNode{}
	}
	if o.Pauses == nil {
		o.Pauses = (*stall.PauseWatch)(nil)
	}
	duration(&o.DefaultDeadline, 5*time.Second)
	duration(&o.MaxDeadline, 30*time.Second)
	duration(&o.WriteStall, 30*time.Second)
	number(&o.MaxMessageBytes, 1<<20)
	number(&o.MaxUploadBytes, 33<<20)
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

// Validate returns all invalid options as one joined error.
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
			faults = append(faults, fmt.Errorf("%s must not be negative", n.name))
		}
	}
	if d := o.withDefaults(); d.DefaultDeadline > d.MaxDeadline {
		faults = append(faults, errors.New("DefaultDeadline must not exceed MaxDeadline"))
	}
	if d := o.withDefaults(); d.MaxWaitingBytes < d.MaxMessageBytes {
		faults = append(faults, errors.New("MaxWaitingBytes must not be below MaxMessageBytes"))
	}
	return errors.Join(faults...)
}

// Server serves the public API to clients. Other nodes and health probes have
// listeners of their own. New makes it.
type Server struct {
	clients  *face
	peers    *face
	health   *face
	forPeers http.Handler

	opts    Options
	conns   *admission.Connections // connections of clients
	guard   *admission.Streams
	waiting *admission.Waiting
	uploads *admission.Uploads
}

// New makes a server, which serves nothing before Mount. opts must be valid.
func New(opts Options) *Server {
	opts = opts.withDefaults()
	clients := admission.NewConnections(opts.MaxConns, opts.MaxAddressConns)
	return &Server{
		opts: opts, conns: clients, guard: admission.NewStreams(opts.MaxStreams, opts.MaxAddressStreams, opts.WriteStall, clients),
		waiting: admission.NewWaiting(int64(opts.MaxWaitingBytes)), uploads: admission.NewUploads(opts.MaxUploads),
	}
}

// Mount makes the server serve an API. It must be called once, before the first
// connection, and starts nothing.
//
// A request of a client passes these layers, from the outermost inwards. The
// order matters: a layer may rely on the checks of the layers before it, and
// cheap rejections come before the body is read.
//
//   - RoomyStack and Connections: stack, reserve connections, concurrent calls.
//   - leaderproxy.Unsaid: a client cannot state a caller other than itself.
//   - Encrypted, certs.Reloader and the console, if they are configured.
//   - CrossOrigin and Origins: pages of foreign origins, DNS rebinding.
//   - plainhttp: a request under /e/ becomes an API call, and a request for
//     /openapi.json becomes several.
//   - Gate: internal services branch off here. Other requests are
//     authenticated, count for their caller's quota of connections, and are
//     rejected until the node is open or if they are for a different cluster.
//   - Arrivals: requests from before a pause of the process.
//   - ContentTypes, Authorizer.ByHeaders and Bodies: callers without any rule
//     are rejected before a byte of the body is read. Then the message is read,
//     limited and charged.
//
// The interceptors of newHandler follow: metrics, traces, audit log, roles,
// quotas, deadlines, validation and permission.
//
// Peers and health probes have their own listeners, with their own limits, so
// clients cannot use up their connections.
func (s *Server) Mount(api API) {
	opts, clients := s.opts, s.conns
	peers := admission.NewConnections(opts.MaxPeerConns, (opts.MaxPeerConns+1)/2)
	admission.WatchConnections(opts.Registerer, clients, peers)
	public := s.newHandler(api.Services)
	fresh := admission.NewArrivals(opts.Pauses)
	internal := map[string]http.Handler{} // no browser page may call these
	for prefix, h := range opts.Internal {
		internal[prefix] = admission.Origins(h, opts.Hosts, nil)
	}
	gate := admission.Gate{Node: opts.Node, Internal: admission.Referring(internal, opts.Node.PeersAt)}
	if opts.Auth != nil {
		gate.Authenticate = func(next http.Handler) http.Handler {
			if opts.Quotas != nil {
				next = opts.Quotas.Connections(opts.Logger, next)
			}
			return opts.Auth.Wrap(next, admission.ClientOf)
		}
	}
	calls := plainhttp.Wrap(gate.Wrap(fresh.Wrap(public)), plainhttp.Options{Types: api.Types, Entities: api.Entities, MaxBytes: opts.MaxMessageBytes, Budget: callBudget{s.waiting},
		Streams: s.guard, WriteStall: opts.WriteStall})
	served := admission.CrossOrigin(admission.Origins(calls, opts.Hosts, opts.Origins), opts.Origins)
	if opts.Console {
		served = console.Wrap(served)
	}
	if opts.Certificates != nil {
		served = opts.Certificates.Wrap(served)
	}
	if opts.TLSOnly {
		served = admission.RequireTLS(served, opts.Internal)
	}
	apart, together := func() bool { return opts.Node.PeersAt() != "" }, func() bool { return false }
	s.clients = newFace(opts, opts.Certificates, clients, fresh, clients.Wrap(leaderproxy.Unsaid(leaderproxy.CurrentPaths(served)), opts.Internal, apart))
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
	about := admission.Health(admission.Gate{Node: opts.Node}.Wrap(fresh.Wrap(public)))
	s.health = newFace(opts, nil, watched, fresh, watched.Wrap(admission.Origins(about, opts.HealthHosts, nil), nil, together))
	s.forPeers = leaderproxy.Handler(admission.Gate{Node: opts.Node, AnyCluster: true}.Wrap(public))
}

// callBudget charges the bodies that plainhttp reads.
type callBudget struct{ waiting *admission.Waiting }

// Take charges n bytes to the caller of ctx, or fails.
func (b callBudget) Take(ctx context.Context, n int64) error { return b.waiting.Of(ctx).Take(n) }

// Give ends the charge of n bytes.
func (b callBudget) Give(ctx context.Context, n int64) { b.waiting.Of(ctx).Give(n) }

// Handler returns the handler that serves clients, for tests and for
// additional listeners.
func (s *Server) Handler() http.Handler { return s.clients.http.Handler }

// ForPeers returns the handler of the calls that other nodes forward for
// their callers, at leaderproxy.Path. Options.Internal mounts it after the
// check that the caller is a node.
func (s *Server) ForPeers() http.Handler { return s.forPeers }

// Serve accepts client connections until Shutdown, and then returns nil. It
// closes the listener.
func (s *Server) Serve(l net.Listener) error { return s.clients.serve(l) }

// ServePeers is Serve for connections from other nodes.
func (s *Server) ServePeers(l net.Listener) error { return s.peers.serve(l) }

// ServeHealth is Serve for connections on which the node answers health probes
// and nothing else. It does not authenticate callers and does not speak TLS.
func (s *Server) ServeHealth(l net.Listener) error { return s.health.serve(l) }

// Break closes every open connection and continues to accept new
// connections. Callers that wait for a response can then retry at a
// different node.
func (s *Server) Break() {
	s.clients.conns.CloseAll()
	s.peers.conns.CloseAll()
	s.health.conns.CloseAll()
}

// Part closes the connections of the client listener that other nodes have used.
// It is called when Options.PeersAt changes.
func (s *Server) Part() { s.clients.conns.CloseInternal() }

// Cut closes the listeners and every connection immediately.
func (s *Server) Cut() {
	s.clients.http.Close()
	s.peers.http.Close()
	s.health.http.Close()
}

// Shutdown stops accepting connections, lets calls in flight finish, ends each
// stream after it has answered what it read, and returns when all are done. If
// ctx ends first, Shutdown closes the remaining connections and returns the
// error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.guard.StopAll()
	return errors.Join(s.clients.shutdown(ctx), s.peers.shutdown(ctx), s.health.shutdown(ctx))
}
