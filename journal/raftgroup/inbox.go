package raftgroup

import (
	"slices"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// inbox is what waits for the loop. Any goroutine puts into it, the loop takes
// everything at once: what a turn drains is bounded by what the inbox holds.
type inbox struct {
	mu     sync.Mutex
	work   work
	bytes  int64
	closed bool
	wake   chan struct{} // holds one token while there may be work
}

// work is one drain of the inbox.
type work struct {
	proposals []proposed
	reads     []asked
	messages  []received
	frames    int64 // bytes of the frames of messages
	peers     []peerEvent
	calls     []func()
}

type proposed struct {
	shard  sharding.ShardID
	fence  sharding.Term
	number uint64
	data   []byte
}

type received struct {
	from sharding.NodeID
	Message
}

// peerEvent is a call of PeerHeard or PeerSilent.
type peerEvent struct {
	node  sharding.NodeID
	heard bool
}

// peer adds an event. Of each node the last two are kept, which is all that
// matters: more than these only repeat each other.
func (w *work) peer(e peerEvent) {
	first, n := 0, 0
	for i := len(w.peers) - 1; i >= 0; i-- {
		if w.peers[i].node != e.node {
			continue
		}
		if n == 0 && w.peers[i].heard == e.heard {
			return
		}
		first, n = i, n+1
	}
	if n == 2 {
		w.peers = slices.Delete(w.peers, first, first+1)
	}
	w.peers = append(w.peers, e)
}

type asked struct {
	shard sharding.ShardID
	token uint64
}

// maxCalls bounds the calls that wait for the loop.
const maxCalls = 1024

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put runs add under the lock unless the inbox is closed, and wakes the loop.
func (b *inbox) put(add func(w *work) error) error {
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

func (b *inbox) propose(p proposed, maxCount int, maxBytes int64) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrStopped
	}
	size := int64(len(p.data)) + entryOverhead
	if len(b.work.proposals) >= maxCount || b.bytes+size > maxBytes && b.bytes > 0 {
		b.mu.Unlock()
		return ErrBusy
	}
	b.bytes += size
	b.work.proposals = append(b.work.proposals, p)
	first := len(b.work.proposals) == 1
	b.mu.Unlock()
	if first {
		b.signal()
	}
	return nil
}

// take returns everything and leaves the emptied slices of last in its place.
func (b *inbox) take(last work) work {
	clear(last.proposals)
	clear(last.messages)
	clear(last.calls)
	b.mu.Lock()
	w := b.work
	b.work = work{proposals: last.proposals[:0], reads: last.reads[:0], messages: last.messages[:0], peers: last.peers[:0], calls: last.calls[:0]}
	b.bytes = 0
	b.mu.Unlock()
	return w
}

// close refuses everything from now on and returns what was waiting.
func (b *inbox) close() work {
	b.mu.Lock()
	b.closed = true
	w := b.work
	b.work = work{}
	b.mu.Unlock()
	return w
}
