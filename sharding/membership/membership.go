package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Errors of a Membership.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the membership is closed")
	// errOtherCluster rejects nodes of a different cluster.
	errOtherCluster = errors.New("the node belongs to a different cluster")
	// errFuture rejects an incarnation so high that no later incarnation of the
	// node could exceed it.
	errFuture = errors.New("the node's start time is in the future; correct the wrong clock")
)

// Membership is this node's gossip. Its methods are safe for concurrent use.
type Membership struct {
	opts   Options
	port   *transport
	peers  *peers
	self   string // gossip address
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex // guards changes of about and Close
	about  nodeMeta
	list   *memberlist.Memberlist
	closed bool

	metaMu sync.Mutex // guards meta, which memberlist reads while it holds its own locks
	meta   []byte
}

// Start starts gossiping and looking for other nodes until Close. It returns
// before it has found any node. If Address is a host name, Start first resolves
// the name, and waits until the name has an address or ctx ends: name servers
// learn of a new node, such as a pod of Kubernetes, seconds after it has
// started.
func Start(ctx context.Context, opts Options) (*Membership, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	opts = opts.withDefaults()
	m := &Membership{
		opts: opts, peers: newPeers(opts.Node, opts.Cluster, opts.Latest),
		about: nodeMeta{node: opts.Node, incarnation: opts.Incarnation, address: opts.Address, cluster: opts.Cluster, disk: opts.Disk},
	}
	m.meta = m.about.encode()
	ip, port, err := m.awaitAddress(ctx)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	m.self = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	m.port = newTransport(opts.Transport, opts.Logger, ip, port, len(opts.Key) > 0)
	m.port.locate = m.peers.announcedName
	if m.list, err = memberlist.Create(m.config()); err != nil {
		m.port.Shutdown()
		return nil, fmt.Errorf("membership: %w", err)
	}
	run, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.tasks.Go(func() { m.rejoin(run) })
	return m, nil
}

// Bounds of the wait for the address of this node's own name.
const (
	nameRetry  = 500 * time.Millisecond
	nameReport = 10 * time.Second // time between two messages for operators
	// nameWait bounds the wait: the node's Raft groups already run, and may lead
	// shards that the node cannot serve yet.
	nameWait = 30 * time.Second
)

// awaitAddress is advertisedAddress, repeated until it succeeds, ctx ends or
// nameWait is over.
func (m *Membership) awaitAddress(ctx context.Context) (net.IP, int, error) {
	ctx, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	retry := time.NewTicker(nameRetry)
	defer retry.Stop()
	var reported time.Time
	for {
		ip, port, err := m.advertisedAddress(ctx)
		if err == nil {
			return ip, port, nil
		}
		if ctx.Err() == nil && time.Since(reported) >= nameReport {
			reported = time.Now()
			m.opts.Logger.Warn("the node's advertised name does not resolve yet; retrying", "address", m.opts.Address, "error", err)
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, 0, err
		}
	}
}

// advertisedAddress returns the address to which other nodes send gossip.
func (m *Membership) advertisedAddress(ctx context.Context) (net.IP, int, error) {
	found, err := m.opts.Lookup.Addresses(ctx, m.opts.Address)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", m.opts.Address, err)
	}
	host, text, err := net.SplitHostPort(found[0])
	if err != nil {
		return nil, 0, err
	}
	port, err := strconv.Atoi(text)
	return net.ParseIP(host), port, err
}

// config returns memberlist's configuration; the package comment explains it.
func (m *Membership) config() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = m.about.name()
	c.Transport = m.port
	c.Label = m.opts.Label
	c.SecretKey = m.opts.Key
	c.Delegate = (*delegate)(m)
	c.Events, c.Alive = m.peers, m.peers
	c.Logger = newLogger(m.opts.Logger)
	c.TCPTimeout = streamTimeout
	// Full state exchanges repair what gossip has missed. They cost only a few
	// hundred bytes per node here, so they can be frequent.
	c.PushPullInterval = 10 * time.Second
	c.DeadNodeReclaimTime = 30 * time.Second
	c.EnableCompression = false // not needed: states are small, and packets are sent over streams
	return c
}

// delegate implements memberlist.Delegate.
type delegate Membership

// NodeMeta implements memberlist.Delegate.
func (d *delegate) NodeMeta(int) []byte {
	d.metaMu.Lock()
	defer d.metaMu.Unlock()
	return d.meta
}

// NotifyMsg implements memberlist.Delegate. User messages are not used.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate. Broadcasts are not used.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate. User state is not used.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate. User state is not used.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// Nodes returns the other nodes that gossip knows or knew, sorted by id.
func (m *Membership) Nodes() []Peer { return m.peers.list() }

// Changes returns a channel that is closed when the result of Nodes changes.
// Call it before Nodes.
func (m *Membership) Changes() <-chan struct{} { return m.peers.changes() }

// SetCluster sets the cluster that the node belongs to from now on. Nodes of
// other clusters are ignored. SetCluster does not block.
func (m *Membership) SetCluster(id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fmt.Errorf("the cluster id must have 1 to %d bytes, got %d", maxIDBytes, len(id))
	}
	m.peers.setCluster(id)
	return m.update(func(a *nodeMeta) { a.cluster = id }, time.Nanosecond)
}

// update changes the node's announcement, and waits until it has been sent, at
// most for the duration wait.
func (m *Membership) update(change func(*nodeMeta), wait time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	change(&m.about)
	meta := m.about.encode()
	m.metaMu.Lock()
	m.meta = meta
	m.metaMu.Unlock()
	m.list.UpdateNode(wait) // an error means that the change was not sent in time; it is sent later
	return nil
}

// Leave announces that this node stops, so that others do not try to reconnect,
// and waits until the announcement has been sent or ctx ends. Call Close next.
func (m *Membership) Leave(ctx context.Context) error {
	wait := streamTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), time.Nanosecond))
	}
	if err := m.update(func(a *nodeMeta) { a.leaving = true }, wait/2); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if err := m.list.Leave(wait / 2); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return ctx.Err()
}

// Close stops gossiping and closes the transport. Unless Leave was called,
// other nodes see this as a crash. Close waits for the goroutines or for ctx.
func (m *Membership) Close(ctx context.Context) error {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		if first {
			err = m.list.Shutdown()
		}
		m.tasks.Wait()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close the membership: %w", ctx.Err())
	}
}
