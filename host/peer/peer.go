package peer

import (
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/sharding"
)

// peer is this node's state about another node.
type peer struct {
	owner *Peers
	id    sharding.NodeID
	queue queue
	kick  chan struct{} // one slot: the link's goroutine must try now
	calls peerv1connect.PeerServiceClient
	bulk  peerv1connect.PeerServiceClient

	incarnation atomic.Uint64 // latest incarnation of the node that this node has heard from
	renewed     atomic.Bool   // the node has restarted since the last look
	signs       Signs         // signs of life of the node
	speaks      atomic.Pointer[sharding.VersionRange]
	timing      timing
	state       atomic.Int32  // written only by watch
	lost        bool          // the node was alive once and is suspected; used only by watch
	made        atomic.Uint64 // number of links to the node that were begun
	sent        traffic
	received    traffic

	mu      sync.Mutex
	address string // where the node listens; "" if there should be no link
	running bool   // the link's goroutine runs
	cut     func(error)
	inbound *served              // the link from the node
	calling map[*served]struct{} // open calls of the node to this node
	ending  ending
	// The newest link from the node: the incarnation that made the link, the
	// link's number, and when the link ended.
	linkOf, linkNumber uint64
	linkEnded          int64 // time in units of Peers.now
}

// traffic counts frames in one direction.
type traffic struct {
	frames, bytes atomic.Uint64
}

func (t *traffic) add(frames, bytes int) {
	t.frames.Add(uint64(frames))
	t.bytes.Add(uint64(bytes))
}

func (p *Peers) newPeer(id sharding.NodeID) *peer {
	q := &peer{owner: p, id: id, kick: make(chan struct{}, 1)}
	q.calls = newClient(&caller{base: p.calls, peers: p, to: q, follow: true}, anyAddress)
	q.bulk = newClient(&caller{base: p.bulk, peers: p, to: q, follow: true}, anyAddress)
	q.queue.init(p.opts.QueueFrames, p.opts.QueueBytes)
	q.signs.Begin(p.now())
	return q
}

// move sets the address, and starts or breaks the link as needed.
func (q *peer) move(address string) {
	p := q.owner
	p.mu.Lock()
	defer p.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.closed || q.address == address {
		return
	}
	q.address = address
	if q.cut != nil {
		q.cut(errMoved)
	}
	if !q.running {
		q.running = true
		p.tasks.Go(func() { q.run(p.ctx) })
	}
	q.again()
}

// again makes the link's goroutine try now instead of after its pause.
func (q *peer) again() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// onRestart ends the links to and from the node's previous incarnation.
// Components must learn that this incarnation has ended, even if the next one
// began at once: the node may have lost its disk in between, and then it no
// longer has the replicas that it led.
func (q *peer) onRestart(incarnation uint64) {
	q.owner.opts.Logger.Info("a node has restarted", "node_id", q.id, "incarnation", incarnation)
	q.signs.Renew()
	q.renewed.Store(true)
	select {
	case q.owner.noticed <- struct{}{}:
	default:
	}
	q.mu.Lock()
	old, cut := q.inbound, q.cut
	q.inbound = nil
	q.mu.Unlock()
	if cut != nil {
		cut(errMoved)
	}
	if old != nil {
		old.abort()
	}
	q.again()
}
