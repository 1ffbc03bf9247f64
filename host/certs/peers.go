package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PeerProtocol is the ALPN protocol between nodes. The actual protocol is
// detected by its first bytes, as on connections without TLS.
const PeerProtocol = "hostd-peer"

// Limits of Peers.
const (
	handshakeTimeout = 5 * time.Second // default of PeerOptions.HandshakeTimeout
	// plainFor is how long a node that does not use TLS is dialed without it,
	// before TLS is tried again. maxPlain bounds the number of such addresses.
	plainFor = 10 * time.Second
	maxPlain = 1024
	// reportEvery is the minimum interval between logged errors of each
	// direction.
	reportEvery = time.Minute
)

var (
	errPlain     = errors.New("the connection does not use TLS, which peer-tls-mode: require demands")
	errNoTLS     = errors.New("no node accepts TLS from other nodes at the address: its peer-tls-mode is off, or the address is for clients, see peer-listen")
	errProtocol  = errors.New("the connection is not between nodes")
	errStrangers = errors.New("the certificate belongs to a node of a different cluster, see cluster-name")
	errNobody    = errors.New("the certificate names no node: see 'hostd cert create-node'")
	errSeveral   = errors.New("the certificate names several nodes of the cluster")
)

// PeerOptions configures Peers.
type PeerOptions struct {
	// All files in Options are required; ClientAuth is ignored.
	Options
	// Cluster is the name of the cluster whose nodes are accepted.
	Cluster string
	// Node is the name of this node, which its own certificate must contain. It
	// is not checked if it is empty.
	Node string
	// Allow also accepts connections without TLS. Nodes that do not use TLS
	// are dialed without it.
	Allow bool
	// HandshakeTimeout bounds a handshake in addition to the caller's deadline;
	// 0 means 5 s.
	HandshakeTimeout time.Duration
	Network          dialer
}

// dialer connects to other nodes.
type dialer interface {
	// Dial connects to an address, host:port.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Peers makes TLS connections with other nodes. Both sides authenticate with a
// certificate. It is safe for concurrent use.
type Peers struct {
	*Reloader
	opts     PeerOptions
	accepted *prometheus.CounterVec
	lastIn   atomic.Int64 // Unix time in ns of the last logged error in Accept
	lastOut  atomic.Int64 // Unix time in ns of the last logged error in Dial

	mu    sync.Mutex
	plain map[string]time.Time // addresses of nodes without TLS, with the time until which they are dialed plain
}

// OpenPeers reads the files like Open.
func OpenPeers(o PeerOptions) (*Peers, error) {
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, handshakeTimeout)
	o.ClientAuth = tls.RequireAndVerifyClientCert
	r, err := openAs(role{own: "peer", authorities: "peer-ca", revoked: "peer-crl", protocols: []string{PeerProtocol}, verify: nodesOf(o.Cluster), fits: fitsNode(o.Node, o.Cluster)}, o.Options)
	if err != nil {
		return nil, err
	}
	p := &Peers{Reloader: r, opts: o, plain: map[string]time.Time{}, accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_peer_accepted_total",
		Help: "Connections from other nodes, if peer-tls-mode is not off, by type: tls, plain or refused.",
	}, []string{"how"})}
	for _, how := range []string{"tls", "plain", "refused"} {
		p.accepted.WithLabelValues(how)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(p.accepted)
	}
	return p, nil
}

// fitsNode checks that the node's own certificate names this node. Other nodes
// would reject its messages otherwise.
func fitsNode(node, cluster string) func(*material) error {
	if node == "" {
		return nil
	}
	return func(m *material) error {
		named, err := nodeOf(m.pair.Leaf, cluster)
		if err == nil && named != node {
			err = fmt.Errorf("the certificate belongs to node %s, but this is node %s", named, node)
		}
		return err
	}
}

// nodesOf verifies certificates of nodes, which must be valid for both sides of
// a connection. It rejects clients' certificates, even if the same authority
// has issued them.
func nodesOf(cluster string) verifier {
	return func(m *material, chain []*x509.Certificate, now time.Time) error {
		if _, err := nodeOf(chain[0], cluster); err != nil {
			return err
		}
		if m.revoked.has(chain) {
			return errRevoked
		}
		if err := m.verify(chain, x509.ExtKeyUsageClientAuth, now); err != nil {
			return err
		}
		return m.verify(chain, x509.ExtKeyUsageServerAuth, now)
	}
}

// nodeOf returns the one node of the cluster that a certificate names, either
// by a URI, see nodeURI, or by the DNS name NODE.node.CLUSTER.
func nodeOf(leaf *x509.Certificate, cluster string) (string, error) {
	node, strange := "", false
	for _, name := range nodesNamed(leaf, cluster, &strange) {
		if node != "" && node != name {
			return "", errSeveral
		}
		node = name
	}
	switch {
	case node != "":
		return node, nil
	case strange:
		return "", errStrangers
	}
	return "", errNobody
}

// nodesNamed returns the nodes of the cluster that a certificate names. It sets
// strange if the certificate names a node of another cluster.
func nodesNamed(leaf *x509.Certificate, cluster string, strange *bool) (names []string) {
	for _, u := range leaf.URIs {
		name, ok := strings.CutPrefix(u.Path, nodePath)
		if u.Scheme != nodeScheme || !ok {
			continue
		}
		if u.Host != cluster {
			*strange = true
			continue
		}
		names = append(names, name)
	}
	for _, host := range leaf.DNSNames {
		if name, ok := strings.CutSuffix(host, ".node."+cluster); ok {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return checkName(name) != nil })
}

// Accept does the handshake of a connection that another node has made, or
// detects that it does not use TLS. The caller must bound the time until the
// first byte, and close conn if Accept fails.
func (p *Peers) Accept(conn net.Conn) (net.Conn, error) {
	b := &begun{Conn: conn}
	if _, err := io.ReadFull(conn, b.first[:]); err != nil {
		return nil, err
	}
	if b.first[0] != handshakeRecord {
		if p.opts.Allow {
			p.accepted.WithLabelValues("plain").Inc()
			return b, nil
		}
		return nil, p.refuse(conn, errPlain)
	}
	c, err := p.secure(context.Background(), tls.Server(b, p.Config()), b)
	if err != nil {
		return nil, p.refuse(conn, err)
	}
	p.accepted.WithLabelValues("tls").Inc()
	return c, nil
}

func (p *Peers) refuse(conn net.Conn, err error) error {
	p.accepted.WithLabelValues("refused").Inc()
	p.reportRefusal(&p.lastIn, "rejected a connection to the peer listener", conn.RemoteAddr().String(), err)
	return err
}

// reportRefusal logs an error, unless one of the same direction was logged recently.
func (p *Peers) reportRefusal(last *atomic.Int64, what, address string, err error) {
	now, before := p.Reloader.opts.Now().UnixNano(), last.Load()
	if before != 0 && now-before < int64(reportEvery) || !last.CompareAndSwap(before, now) {
		return
	}
	p.Reloader.opts.Logger.Warn(what, "address", address, "error", err)
}

// Dial connects to another node. Unless Allow is set, it always uses TLS.
// With Allow, a node that does not use TLS is dialed a second time without
// it, and Dial remembers the node for a while so that it dials only once.
func (p *Peers) Dial(ctx context.Context, address string) (net.Conn, error) {
	if p.opts.Allow && p.isPlain(address) {
		return p.dialPlain(ctx, address)
	}
	conn, err := p.opts.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c, err := p.secure(ctx, tls.Client(conn, p.dialing(conn)), conn)
	if err == nil {
		return c, nil
	}
	conn.Close()
	if p.opts.Allow && speaksNoTLS(err) {
		p.setPlain(address)
		return p.dialPlain(ctx, address)
	}
	if speaksNoTLS(err) {
		err = fmt.Errorf("%w: %w", errNoTLS, err)
	}
	p.reportRefusal(&p.lastOut, "TLS handshake with another node failed", address, err)
	return nil, fmt.Errorf("handshake with %s: %w", address, err)
}

// speaksNoTLS reports whether the other side has answered with something
// other than TLS, or is a listener for clients. For a broken connection or
// an untrusted certificate it returns false.
func speaksNoTLS(err error) bool {
	var header tls.RecordHeaderError
	var remote *net.OpError
	return errors.As(err, &header) ||
		errors.As(err, &remote) && remote.Op == "remote error" && remote.Err.Error() == "tls: no application protocol"
}

// dialing returns the TLS configuration for a dialed connection.
func (p *Peers) dialing(below net.Conn) *tls.Config {
	s := p.current.Load()
	c := s.config.Clone()
	// Always send the certificate, so that the other side can say why it
	// rejects it.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &s.pair, nil }
	// VerifyConnection replaces the default verification, which checks the host
	// name: a certificate identifies a node, while gossip only knows addresses.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(shown tls.ConnectionState) error { return p.storeVerified(below, shown.PeerCertificates) }
	return c
}

// secure does a handshake and starts to track the connection.
func (p *Peers) secure(ctx context.Context, t *tls.Conn, below net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.HandshakeTimeout)
	defer cancel()
	e := p.follow(below)
	err := t.HandshakeContext(ctx)
	if err == nil && t.ConnectionState().NegotiatedProtocol != PeerProtocol {
		err = errProtocol
	}
	if err != nil {
		p.forget(below)
		return nil, err
	}
	node, err := nodeOf(t.ConnectionState().PeerCertificates[0], p.opts.Cluster)
	if err != nil {
		p.forget(below)
		return nil, err
	}
	p.names(e, node)
	return &channel{t, p.Reloader, e, node}, nil
}

// channel is a TLS connection with another node.
type channel struct {
	net.Conn
	owner *Reloader
	entry *connection
	node  string
}

// Node returns the node on the other side, according to its certificate.
func (c *channel) Node() string { return c.node }

// Close closes the connection at once, without a TLS close_notify. The protocol
// above marks its own end.
func (c *channel) Close() error {
	c.owner.forget(c.entry.below)
	return c.entry.below.Close()
}

// ConnContext adds the connection to a request's context, for Wrap.
func (p *Peers) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	for conn != nil {
		if c, ok := conn.(*channel); ok {
			return context.WithValue(ctx, connectionKey{}, c.entry)
		}
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = over.NetConn()
	}
	return ctx
}

func (p *Peers) isPlain(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.plain[address]
	if ok && p.Reloader.opts.Now().After(until) {
		delete(p.plain, address)
		ok = false
	}
	return ok
}

func (p *Peers) setPlain(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for known := range p.plain {
		if len(p.plain) < maxPlain {
			break
		}
		delete(p.plain, known)
	}
	p.plain[address] = p.Reloader.opts.Now().Add(plainFor)
}

func (p *Peers) forgetPlain(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.plain, address)
}

func (p *Peers) dialPlain(ctx context.Context, address string) (net.Conn, error) {
	conn, err := p.opts.Network.Dial(ctx, address)
	if err != nil {
		p.forgetPlain(address)
		return nil, err
	}
	return &unheard{Conn: conn, peers: p, address: address}, nil
}

// unheard is a connection without TLS to a node that may require TLS by now. If
// the connection ends before a byte was received, TLS is tried next time,
// even if nobody has read from the connection, because gossip packets are
// sent in one direction only.
type unheard struct {
	net.Conn
	peers   *Peers
	address string
	heard   atomic.Bool
}

// Read implements net.Conn.
func (u *unheard) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	if n > 0 {
		if !u.heard.Load() {
			u.heard.Store(true)
		}
	} else if err != nil && !u.heard.Load() {
		u.peers.forgetPlain(u.address)
	}
	return n, err
}

// Close implements net.Conn.
func (u *unheard) Close() error {
	if !u.heard.Load() {
		u.peers.forgetPlain(u.address)
	}
	return u.Conn.Close()
}

// begun is a connection whose first byte was already read.
type begun struct {
	net.Conn
	first [1]byte
	given bool
}

// Read implements net.Conn.
func (b *begun) Read(to []byte) (int, error) {
	if b.given || len(to) == 0 {
		return b.Conn.Read(to)
	}
	b.given = true
	return copy(to, b.first[:]), nil
}
