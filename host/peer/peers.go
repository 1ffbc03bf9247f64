package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
)

// Peers is this node's side of all links and calls between nodes. Its methods
// are safe for concurrent use.
type Peers struct {
	opts    Options
	started time.Time
	cluster atomic.Pointer[string]
	// incarnation identifies this process among all that have run as this
	// node.
	incarnation atomic.Uint64
	confirmed   atomic.Pointer[func(sharding.NodeID) uint64]
	members     atomic.Pointer[Members]
	lookups     lookups
	replaced    atomic.Bool                               // another node has rejected this incarnation as outdated since the last TakeReplaced
	table       atomic.Pointer[map[sharding.NodeID]*peer] // replaced on every change, never modified
	handler     http.Handler
	referrals   referrals
	future      futureStarts
	// calls and bulk use separate connections, so that a snapshot does not
	// delay calls. Links have connections of their own, so neither calls nor
	// snapshots delay heartbeats.
	calls, bulk *http.Transport
	snapshots   chan struct{} // semaphore with one slot for each snapshot that may be received at a time
	noticed     chan struct{} // one slot: something arrived from a node that was not alive

	mu     sync.Mutex
	closed bool
	served map[*served]struct{} // the streams that are being served
	active sync.WaitGroup       // counts the streams in served
	ctx    context.Context      // context of the links
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// New starts the failure detector. It makes no connection before SetAddresses.
func New(opts Options) (*Peers, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	opts = opts.withDefaults()
	p := &Peers{
		opts: opts, started: time.Now(),
		calls:     network.NewHTTPTransport(opts.Network, network.HTTPOptions{}),
		bulk:      network.NewHTTPTransport(opts.Network, network.HTTPOptions{}),
		snapshots: make(chan struct{}, opts.MaxSnapshots),
		noticed:   make(chan struct{}, 1),
		served:    map[*served]struct{}{},
	}
	p.cluster.Store(&opts.Cluster)
	p.incarnation.Store(opts.Incarnation)
	p.table.Store(&map[sharding.NodeID]*peer{})
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.handler = p.newHandler()
	p.tasks.Go(func() { p.watch(p.ctx) })
	return p, nil
}

// Cluster returns the cluster that this node belongs to, or "" if there is
// none.
func (p *Peers) Cluster() string { return *p.cluster.Load() }

// SetCluster sets the cluster of a node that had none. Before that, the node
// rejects all calls except Probe and BootstrapVote, and of its own calls only
// Probe, BootstrapVote and Join succeed.
func (p *Peers) SetCluster(id string) error {
	if !validName(id) {
		return fmt.Errorf("cluster id %q is empty, too long or not printable ASCII", id)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.Cluster(); own != "" && own != id {
		return fmt.Errorf("%w: this node belongs to cluster %q", ErrWrongCluster, own)
	}
	p.cluster.Store(&id)
	for _, q := range *p.table.Load() {
		q.again()
	}
	return nil
}

// Raise gives a node that has not joined a higher incarnation than it was
// created with, because its cluster has seen a later incarnation under its
// name.
func (p *Peers) Raise(incarnation uint64) {
	p.incarnation.Store(max(incarnation, p.incarnation.Load()))
}

// Incarnation identifies this process among all that have run as this node.
func (p *Peers) Incarnation() uint64 { return p.incarnation.Load() }

// TakeReplaced reports whether, since the last call of TakeReplaced, another
// node has rejected this one because it knows a later incarnation of this
// node. A single node claims this, so the claim may be wrong.
func (p *Peers) TakeReplaced() bool { return p.replaced.Swap(false) }

// noteReplaced records whether err says that this incarnation is outdated,
// and returns err.
func (p *Peers) noteReplaced(err error) error {
	var theirs *faultError
	if errors.As(err, &theirs) && theirs.kind == ErrOldIncarnation {
		p.replaced.Store(true)
	}
	return err
}

// Confirm sets a function that returns the incarnation of a node according
// to the metadata, or 0. The function must not block. From then on a node is
// accepted if its incarnation is not older than the result, even if calls
// under its name claimed a later incarnation, because a forged later
// incarnation must not lock the node out.
func (p *Peers) Confirm(start func(sharding.NodeID) uint64) { p.confirmed.Store(&start) }

// SetAddresses sets where nodes listen, as host:port. Peers keeps links to
// exactly these nodes, except this one. It does not keep the map.
func (p *Peers) SetAddresses(addresses map[sharding.NodeID]string) {
	for id, address := range addresses {
		if id == p.opts.Self || address == "" {
			continue
		}
		q, err := p.addPeer(id)
		if err != nil {
			p.opts.Logger.Warn("not connecting to a node", "node_id", id, "error", err)
			continue
		}
		q.move(address)
	}
	for id, q := range *p.table.Load() {
		if addresses[id] == "" {
			q.move("")
		}
	}
}

// Send implements raftgroup.Transport. It queues a frame of at most
// MaxFrameBytes for a node. It never blocks, and drops the frame if the node
// has no address or its queue is full. The frame must not be modified
// afterwards.
func (p *Peers) Send(to sharding.NodeID, frame []byte) {
	if q := (*p.table.Load())[to]; q != nil && len(frame) > 0 {
		q.queue.push(frame)
	}
}

// IsAlive reports whether the node was alive when the failure detector last
// looked: something had arrived from it within SuspectAfter, and its raft loop
// had made progress within StallAfter.
func (p *Peers) IsAlive(node sharding.NodeID) bool {
	q := (*p.table.Load())[node]
	return q != nil && q.isAlive()
}

// IsSuspected reports whether the node is suspected. A node that became known a
// moment ago is neither alive nor suspected.
func (p *Peers) IsSuspected(node sharding.NodeID) bool {
	q := (*p.table.Load())[node]
	return q != nil && q.state.Load() == stateSuspected
}

// DroppedFrames returns the number of frames for a node that were not sent.
func (p *Peers) DroppedFrames(node sharding.NodeID) uint64 {
	if q := (*p.table.Load())[node]; q != nil {
		_, _, dropped := q.queue.stats()
		return dropped
	}
	return 0
}

// Stats describes this node's links with one other node. Counters start at 0
// when this process starts.
type Stats struct {
	Node           sharding.NodeID
	Address        string // address that the link goes to; empty if there should be no link
	Incarnation    uint64 // latest incarnation of the node that this node has heard from; 0 if none
	Alive          bool
	Links          uint64 // links to the node that were begun
	FramesSent     uint64
	BytesSent      uint64
	FramesReceived uint64
	BytesReceived  uint64
	FramesDropped  uint64 // frames that were not sent
	QueuedFrames   int
	QueuedBytes    int
}

// Stats describes all known nodes, unordered, for metrics.
func (p *Peers) Stats() []Stats {
	table := *p.table.Load()
	out := make([]Stats, 0, len(table))
	for id, q := range table {
		s := Stats{
			Node: id, Address: p.addressOf(id), Incarnation: q.incarnation.Load(), Alive: q.isAlive(),
			Links: q.made.Load(), FramesSent: q.sent.frames.Load(), BytesSent: q.sent.bytes.Load(),
			FramesReceived: q.received.frames.Load(), BytesReceived: q.received.bytes.Load(),
		}
		s.QueuedFrames, s.QueuedBytes, s.FramesDropped = q.queue.stats()
		out = append(out, s)
	}
	return out
}

// Handler returns the handler for other nodes' calls and its path.
func (p *Peers) Handler() (path string, h http.Handler) { return servicePath, p.handler }

// Close ends all links and served streams and waits for them or for ctx. Call
// it before the HTTP server is shut down, because that waits for served calls.
func (p *Peers) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	open := make([]*served, 0, len(p.served))
	for s := range p.served {
		open = append(open, s)
	}
	p.mu.Unlock()
	p.cancel()
	for _, s := range open {
		s.abort()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.tasks.Wait()
		p.active.Wait()
		p.calls.CloseIdleConnections()
		p.bulk.CloseIdleConnections()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close peers: %w", ctx.Err())
	}
}

// addressOf returns where a node listens, or "" if that is unknown.
func (p *Peers) addressOf(id sharding.NodeID) string {
	q := (*p.table.Load())[id]
	if q == nil {
		return ""
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.address
}

// addPeer returns the state of a node and creates it if necessary. The state of
// a node is dropped only if there is no room, because an older incarnation
// of a node must be recognized.
func (p *Peers) addPeer(id sharding.NodeID) (*peer, error) {
	if q := (*p.table.Load())[id]; q != nil {
		return q, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	table := *p.table.Load()
	if q := table[id]; q != nil {
		return q, nil
	}
	switch {
	case p.closed:
		return nil, errClosed
	case !validName(string(id)):
		return nil, fmt.Errorf("%w: invalid node id %.200q", ErrRefused, id)
	}
	table = maps.Clone(table)
	if len(table) >= maxPeers && !evict(table) {
		return nil, fmt.Errorf("%w: the limit of %d known nodes is reached", ErrUnavailable, maxPeers)
	}
	q := p.newPeer(id)
	table[id] = q
	p.table.Store(&table)
	return q, nil
}

// evict drops the state of one node that has no link in either direction and is
// suspected.
func evict(table map[sharding.NodeID]*peer) bool {
	for id, q := range table {
		q.mu.Lock()
		idle := q.address == "" && !q.running && q.inbound == nil && q.state.Load() == stateSuspected
		q.mu.Unlock()
		if idle {
			delete(table, id)
			return true
		}
	}
	return false
}

// now is the time since New was called, in nanoseconds.
func (p *Peers) now() int64 { return int64(time.Since(p.started)) }
