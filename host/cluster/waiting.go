package cluster

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// waitingTime is how long a node that asked for admission counts as waiting
	// for it: it asks again every few seconds.
	waitingTime = 15 * time.Second
	// maxWaiting bounds the nodes that are remembered.
	maxWaiting = 64
)

// waiting are nodes that asked this one for admission lately.
type waiting struct {
	mu    sync.Mutex
	nodes map[sharding.NodeID]waiter
}

type waiter struct {
	meta.Member
	at time.Time
}

// note remembers that a node asks.
func (w *waiting) note(m meta.Member, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if w.nodes == nil {
		w.nodes = map[sharding.NodeID]waiter{}
	}
	if _, known := w.nodes[m.Node]; known || len(w.nodes) < maxWaiting {
		w.nodes[m.Node] = waiter{m, now}
	}
}

// admitted forgets a node.
func (w *waiting) admitted(node sharding.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, node)
}

// list returns who still waits, by name.
func (w *waiting) list(now time.Time) []meta.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	out := make([]meta.Member, 0, len(w.nodes))
	for _, n := range w.nodes {
		out = append(out, n.Member)
	}
	slices.SortFunc(out, func(a, b meta.Member) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// expire is called with the lock held.
func (w *waiting) expire(now time.Time) {
	maps.DeleteFunc(w.nodes, func(_ sharding.NodeID, n waiter) bool { return now.Sub(n.at) > waitingTime })
}
