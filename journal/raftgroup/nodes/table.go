package nodes

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// Node is a node on which members of groups here live. It is heard or silent;
// which of them, the user says, who sees the bytes that arrive:
//
//	unheard ── Heard ──▶ heard ◀── Heard ── silent
//	   │                   │                  ▲
//	   │                   └──── Silence ─────┤
//	   └── Silence, or Tick, once it is due ──┘
//
// A node that was never heard counts as heard until then.
type Node struct {
	ID sharding.NodeID
	// Frame is under way to the node; it is of the one who sends.
	Frame Frame

	silent bool
	// unheard since it became known; it is due to be silent at that tick.
	unheard bool
	due     uint64
}

// Silent says that the node is not heard.
func (n *Node) Silent() bool { return n.silent }

// Table has the nodes.
type Table struct {
	locate  func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)
	silence uint64 // ticks after which a node that was never heard is silent
	now     uint64
	byID    map[sharding.NodeID]*Node
	all     []*Node // in the order in which they became known
	unheard int     // of them
}

// NewTable knows no nodes yet. locate may be nil; one that it says a replica
// lives on is sure.
func NewTable(silence int, locate func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)) *Table {
	return &Table{locate: locate, silence: uint64(silence), byID: map[sharding.NodeID]*Node{}}
}

// node returns what is known of a node, which begins now if nothing is.
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

// known ends the time in which an unheard node counts as heard.
func (t *Table) known(n *Node) {
	if n.unheard {
		n.unheard = false
		t.unheard--
	}
}

// Heard notes that a node is heard, and says whether it was silent.
func (t *Table) Heard(id sharding.NodeID) (n *Node, back bool) {
	n = t.node(id)
	t.known(n)
	back = n.silent
	n.silent = false
	return n, back
}

// Silence notes that a node is silent, and says whether it was heard.
func (t *Table) Silence(id sharding.NodeID) (n *Node, lost bool) {
	n = t.node(id)
	t.known(n)
	lost = !n.silent
	n.silent = true
	return n, lost
}

// Tick moves the clock on.
func (t *Table) Tick() { t.now++ }

// Expired makes the next of the nodes silent that were never heard for so long,
// nil if there is none.
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

// Prune forgets silent nodes on which nothing lives any more: they left.
func (t *Table) Prune(used func(*Node) bool) {
	t.all = slices.DeleteFunc(t.all, func(n *Node) bool {
		gone := n.silent && !used(n)
		if gone {
			delete(t.byID, n.ID)
		}
		return gone
	})
}

// Count is how many nodes are known, and how many of them are silent.
func (t *Table) Count() (all, silent int) {
	for _, n := range t.all {
		if n.silent {
			silent++
		}
	}
	return len(t.all), silent
}

// Frame gathers messages for a node.
type Frame struct {
	b    []byte
	hint int // length of the last one, and a little more
}

// Add adds a message; first says that it began the frame.
func (f *Frame) Add(m *wire.Message) (first bool) {
	if first = f.b == nil; first {
		f.b = wire.BeginFrame(make([]byte, 0, f.hint))
	}
	f.b = wire.AppendMessage(f.b, m)
	return first
}

// Len is how long the frame is.
func (f *Frame) Len() int { return len(f.b) }

// Cut returns the frame, and begins the next.
func (f *Frame) Cut() []byte {
	b := f.take()
	f.b = wire.BeginFrame(nil)
	return b
}

// End returns the frame, nil if it has no messages.
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
