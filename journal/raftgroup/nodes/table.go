package nodes

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// Node is a node on which members of groups here live. The caller, which sees
// the incoming bytes, reports whether it is alive or suspected:
//
//	unheard ── Heard ──▶ alive ◀── Heard ── suspected
//	   │                   │                  ▲
//	   │                   └──── Silence ─────┤
//	   └── Silence, or Tick, once it is due ──┘
//
// A node that was never heard from counts as alive until its deadline.
type Node struct {
	ID sharding.NodeID
	// Frame collects messages for the node. It is used by the sender.
	Frame Frame

	silent bool
	// unheard since the node became known; it becomes suspected at tick due.
	unheard bool
	due     uint64
}

// Silent reports whether the node is suspected.
func (n *Node) Silent() bool { return n.silent }

// Table holds the known nodes.
type Table struct {
	locate  func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)
	silence uint64 // ticks after which a node that was never heard from is suspected
	now     uint64
	byID    map[sharding.NodeID]*Node
	all     []*Node // in the order they became known
	unheard int     // number of unheard nodes
}

// NewTable returns an empty table. locate may be nil; its answers are final.
func NewTable(silence int, locate func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)) *Table {
	return &Table{locate: locate, silence: uint64(silence), byID: map[sharding.NodeID]*Node{}}
}

// node returns the node with the id, and adds it if it is unknown.
func (t *Table) node(id sharding.NodeID) *Node {
	n := t.byID[id]
	if n == nil {
		n = &Node{ID: id, unheard: true, due: t.now + t.silence}
		t.byID[id] = n
		t.all = append(t.all, n)
		t.unheard++
	}
	return n
}

// known marks a node as no longer unheard.
func (t *Table) known(n *Node) {
	if n.unheard {
		n.unheard = false
		t.unheard--
	}
}

// Heard marks a node as alive, and reports whether it was suspected.
func (t *Table) Heard(id sharding.NodeID) (n *Node, back bool) {
	n = t.node(id)
	t.known(n)
	back = n.silent
	n.silent = false
	return n, back
}

// Silence marks a node as suspected, and reports whether it was alive.
func (t *Table) Silence(id sharding.NodeID) (n *Node, lost bool) {
	n = t.node(id)
	t.known(n)
	lost = !n.silent
	n.silent = true
	return n, lost
}

// Tick advances the clock.
func (t *Table) Tick() { t.now++ }

// Expired marks the next node as suspected that was never heard from within its
// deadline, and returns it, or nil if there is none.
func (t *Table) Expired() *Node {
	if t.unheard == 0 {
		return nil
	}
	for _, n := range t.all {
		if n.unheard && t.now >= n.due {
			t.known(n)
			n.silent = true
			return n
		}
	}
	return nil
}

// Prune removes suspected nodes on which no replica lives any more: they left.
func (t *Table) Prune(used func(*Node) bool) {
	t.all = slices.DeleteFunc(t.all, func(n *Node) bool {
		gone := n.silent && !used(n)
		if gone {
			delete(t.byID, n.ID)
		}
		return gone
	})
}

// Count returns the number of known nodes and of suspected nodes.
func (t *Table) Count() (all, silent int) {
	for _, n := range t.all {
		if n.silent {
			silent++
		}
	}
	return len(t.all), silent
}

// Frame collects messages for a node.
type Frame struct {
	b    []byte
	hint int // expected length: that of the last frame plus a quarter
}

// Add adds a message; first reports that it started a frame.
func (f *Frame) Add(m *wire.Message) (first bool) {
	if first = f.b == nil; first {
		f.b = wire.BeginFrame(make([]byte, 0, f.hint))
	}
	f.b = wire.AppendMessage(f.b, m)
	return first
}

// Len returns the length of the frame.
func (f *Frame) Len() int { return len(f.b) }

// Cut returns the frame and starts the next one.
func (f *Frame) Cut() []byte {
	b := f.take()
	f.b = wire.BeginFrame(nil)
	return b
}

// End returns the frame, or nil if it has no messages.
func (f *Frame) End() []byte {
	if len(f.b) <= wire.FrameHeadBytes {
		f.b = nil
		return nil
	}
	return f.take()
}

func (f *Frame) take() []byte {
	b := f.b
	f.b, f.hint = nil, len(b)+len(b)/4
	return wire.EndFrame(b)
}
