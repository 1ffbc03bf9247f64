package inbox

import (
	"errors"
	"slices"
	"sync"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

var (
	// ErrBusy: a bound is reached and the call had no effect. Retry later.
	ErrBusy = errors.New("raftgroup: too much is waiting")
	// ErrStopped: the loop was closed or its log failed. What was accepted
	// before has an unknown outcome.
	ErrStopped = errors.New("raftgroup: stopped")
)

// Inbox is what waits for the loop. Any goroutine puts into it, the loop takes
// everything at once: what a turn drains is bounded by what the inbox holds.
type Inbox struct {
	mu     sync.Mutex
	work   Work
	bytes  int64
	closed bool
	wake   chan struct{} // holds one token while there may be work
}

// Work is one drain of the inbox.
type Work struct {
	Proposals []Proposal
	Reads     []Read
	Messages  []Message
	Frames    int64 // bytes of the frames of Messages
	Peers     []Peer
	Stopped   []Stopped
	Calls     []func()
}

// Proposal is a call of Propose.
type Proposal struct {
	Shard  sharding.ShardID
	Fence  sharding.Term
	Number uint64
	Data   []byte
}

// Message came in a frame from a node.
type Message struct {
	From sharding.NodeID
	wire.Message
}

// Peer is a call of PeerHeard, PeerSilent or PeerGone.
type Peer struct {
	Node  sharding.NodeID
	Heard bool
	Gone  bool // and not only silent
}

// AddPeer adds an event. Of each node the last two are kept, which is all that
// matters: more than these only repeat each other.
func (w *Work) AddPeer(e Peer) {
	first, n := 0, 0
	for i := len(w.Peers) - 1; i >= 0; i-- {
		if w.Peers[i].Node != e.Node {
			continue
		}
		if n == 0 && w.Peers[i].Heard == e.Heard {
			return
		}
		first, n = i, n+1
	}
	if n == 2 {
		w.Peers = slices.Delete(w.Peers, first, first+1)
	}
	w.Peers = append(w.Peers, e)
}

// Read is a call of ReadIndex.
type Read struct {
	Shard sharding.ShardID
	Token uint64
}

// Stopped is a call of ReplicaStopped.
type Stopped struct {
	Shard      sharding.ShardID
	Generation uint32
	Reason     sharding.StopReason
}

// New is an empty inbox.
func New() *Inbox { return &Inbox{wake: make(chan struct{}, 1)} }

// Put runs add under the lock unless the inbox is closed, and wakes the loop.
func (b *Inbox) Put(add func(w *Work) error) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrStopped
	}
	err := add(&b.work)
	b.mu.Unlock()
	if err == nil {
		b.signal()
	}
	return err
}

func (b *Inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Propose adds a proposal unless too much waits.
func (b *Inbox) Propose(p Proposal, maxCount int, maxBytes int64) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrStopped
	}
	size := int64(len(p.Data)) + raftlog.EntryOverhead
	if len(b.work.Proposals) >= maxCount || b.bytes+size > maxBytes && b.bytes > 0 {
		b.mu.Unlock()
		return ErrBusy
	}
	b.bytes += size
	b.work.Proposals = append(b.work.Proposals, p)
	first := len(b.work.Proposals) == 1
	b.mu.Unlock()
	if first {
		b.signal()
	}
	return nil
}

// Take returns everything and leaves the emptied slices of last in its place.
func (b *Inbox) Take(last Work) Work {
	clear(last.Proposals)
	clear(last.Messages)
	clear(last.Calls)
	b.mu.Lock()
	w := b.work
	b.work = Work{Proposals: last.Proposals[:0], Reads: last.Reads[:0], Messages: last.Messages[:0], Peers: last.Peers[:0], Calls: last.Calls[:0]}
	b.bytes = 0
	b.mu.Unlock()
	return w
}

// Close refuses everything from now on and returns what was waiting.
func (b *Inbox) Close() Work {
	b.mu.Lock()
	b.closed = true
	w := b.work
	b.work = Work{}
	b.mu.Unlock()
	return w
}

// Wake gives a token while there may be work.
func (b *Inbox) Wake() <-chan struct{} { return b.wake }
