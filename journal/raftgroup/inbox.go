package raftgroup

import (
	"slices"
	"sync"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// inbox is the bounded queue in front of the loop. Any goroutine may add to it.
// The loop takes all queued input at once, so the work of a drain is bounded by
// the bounds of the inbox.
type inbox struct {
	mu     sync.Mutex
	work   inboxWork
	bytes  int64
	closed bool
	wake   chan struct{} // holds one token while there may be work
}

// inboxWork is one drain of the inbox.
type inboxWork struct {
	Proposals []queuedProposal
	Reads     []queuedRead
	Messages  []receivedMessage
	Frames    int64 // bytes of the frames of Messages
	Peers     []peerEvent
	Stopped   []StoppedReplica
	Calls     []func()
}

// queuedProposal is a call of Propose.
type queuedProposal struct {
	Shard  sharding.ShardID
	Fence  sharding.Term
	Number uint64
	Data   []byte
}

// receivedMessage is a message received in a frame from a node.
type receivedMessage struct {
	From sharding.NodeID
	wire.Message
}

// peerEvent is a call of PeerAlive, PeerSuspected or PeerFailed.
type peerEvent struct {
	Node   sharding.NodeID
	Alive  bool
	Failed bool // the process has failed, not only gone silent
}

// AddPeer adds an event. It keeps the last two events of each node, because
// earlier events have no further effect.
func (w *inboxWork) AddPeer(e peerEvent) {
	first, n := 0, 0
	for i := len(w.Peers) - 1; i >= 0; i-- {
		if w.Peers[i].Node != e.Node {
			continue
		}
		if n == 0 && w.Peers[i].Alive == e.Alive {
			return
		}
		first, n = i, n+1
	}
	if n == 2 {
		w.Peers = slices.Delete(w.Peers, first, first+1)
	}
	w.Peers = append(w.Peers, e)
}

// queuedRead is a call of ReadIndex.
type queuedRead struct {
	Shard sharding.ShardID
	Token uint64
}

// newInbox returns an empty inbox.
func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// Put runs add under the lock unless the inbox is closed, and wakes the loop.
func (b *inbox) Put(add func(w *inboxWork) error) error {
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

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Propose adds a proposal unless the queue is full.
func (b *inbox) Propose(p queuedProposal, maxCount int, maxBytes int64) error {
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

// Take returns all queued work. It reuses the slices of last for the work that
// is queued next.
func (b *inbox) Take(last inboxWork) inboxWork {
	clear(last.Proposals)
	clear(last.Messages)
	clear(last.Calls)
	b.mu.Lock()
	w := b.work
	b.work = inboxWork{Proposals: last.Proposals[:0], Reads: last.Reads[:0], Messages: last.Messages[:0], Peers: last.Peers[:0], Calls: last.Calls[:0]}
	b.bytes = 0
	b.mu.Unlock()
	return w
}

// Close rejects all further input and returns the queued work.
func (b *inbox) Close() inboxWork {
	b.mu.Lock()
	b.closed = true
	w := b.work
	b.work = inboxWork{}
	b.mu.Unlock()
	return w
}

// Wake returns a channel that receives a token while there may be work.
func (b *inbox) Wake() <-chan struct{} { return b.wake }
