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
	// errOtherCluster keeps nodes of another cluster out.
	errOtherCluster = errors.New("the node is of another cluster")
	// errFuture keeps out what no later start of the node could exceed.
	errFuture = errors.New("the node has started in the future; set the clocks")
)

// Membership is this node's gossip. Its methods are safe for concurrent use.
type Membership struct {
	opts   Options
	port   *transport
	peers  *peers
	self   string // gossip address
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex // over changes of what the node says, and Close
	about  about
	list   *memberlist.Memberlist
	closed bool

	metaMu sync.Mutex // a callback of memberlist reads meta with its own locks held
	meta   []byte
}

// Start begins to gossip, and to look for the others until Close. It returns
// before it has found any. It takes a moment where Address is a name that must
// be looked up, and fails where that does.
func Start(ctx context.Context, opts Options) (*Membership, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	opts = opts.withDefaults()
	m := &Membership{
		opts: opts, peers: newPeers(opts.Node, opts.Cluster, opts.Latest),
		about: about{node: opts.Node, incarnation: opts.Incarnation, address: opts.Address, cluster: opts.Cluster, disk: opts.Disk},
	}
	m.meta = m.about.encode()
	ip, port, err := m.advertised(ctx)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	m.self = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	m.port = newTransport(opts.Transport, opts.Logger, ip, port, len(opts.Key) > 0)
	if m.list, err = memberlist.Create(m.config()); err != nil {
		m.port.Shutdown()
		return nil, fmt.Errorf("membership: %w", err)
	}
	run, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.tasks.Go(func() { m.rejoin(run) })
	return m, nil
}

// advertised is the address that others gossip to.
func (m *Membership) advertised(ctx context.Context) (net.IP, int, error) {
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

// config is what memberlist runs with; package membership's comment says why.
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
	// What gossip has missed is made up by comparing all that two nodes know.
	// That is a few hundred bytes a node here, so it can be often.
	c.PushPullInterval = 10 * time.Second
	c.DeadNodeReclaimTime = 30 * time.Second
	c.EnableCompression = false // states are small, and packets go over a stream
	return c
}

// delegate answers what memberlist asks.
type delegate Membership

// NodeMeta implements memberlist.Delegate.
func (d *delegate) NodeMeta(int) []byte {
	d.metaMu.Lock()
	defer d.metaMu.Unlock()
	return d.meta
}

// NotifyMsg implements memberlist.Delegate; there are no messages.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate; there are none.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate; there is none.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate; there is none.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// Nodes returns the other nodes that gossip knows or knew, by id.
func (m *Membership) Nodes() []Peer { return m.peers.list() }

// Changed returns a channel that is closed when Nodes would answer otherwise.
// Take it before looking.
func (m *Membership) Changed() <-chan struct{} { return m.peers.change() }

// SetCluster says that the node is of a cluster now. Nodes of another are not
// seen any more. It does not block.
func (m *Membership) SetCluster(id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fmt.Errorf("a cluster id has 1 to %d bytes, not %d", maxIDBytes, len(id))
	}
	m.peers.setCluster(id)
	return m.update(func(a *about) { a.cluster = id }, time.Nanosecond)
}

// update changes what the node says of itself, and waits for that to have been
// sent for at most wait.
func (m *Membership) update(change func(*about), wait time.Duration) error {
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
	m.list.UpdateNode(wait) // fails when nobody was told in time; they will be
	return nil
}

// Leave tells the others that this node stops, so that they do not look for it,
// and waits for that to have been sent, or for ctx. Close comes next.
func (m *Membership) Leave(ctx context.Context) error {
	wait := streamTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), time.Nanosecond))
	}
	if err := m.update(func(a *about) { a.leaving = true }, wait/2); err != nil {
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

// Close ends the gossip and closes the transport; others see the node vanish,
// unless it left. It waits for the goroutines, or for ctx.
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
