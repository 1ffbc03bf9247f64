package nodes

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// Node is a node on which members of groups here live. The caller, which sees
// the incoming bytes, reports whether the node is alive or suspected:
//
//	unheard ─ MarkAlive ─▶ alive ◀─ MarkAlive ─ suspected
//	   │                    │                      ▲
//	   │                    └─── MarkSuspected ────┤
//	   └─ MarkSuspected, or ExpireNext, once due ──┘
//
// A node from which nothing has arrived counts as alive until its deadline.
type Node struct {
	ID sharding.NodeID
	// Frame collects messages for the node. It is used by the sender.
	Frame Frame

	suspected bool
	// unheard means that nothing has arrived from the node since it became
	// known. The node becomes suspected at tick deadline.
	unheard  bool
	deadline uint64
}

// IsSuspected reports whether the node is suspected.
func (n *Node) IsSuspected() bool { return n.suspected }

// Table holds the known nodes.
type Table struct {
	locate       func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)
	suspectTicks uint64 // number of ticks after which an unheard node is suspected
	now          uint64
	byID         map[sharding.NodeID]*Node
	all          []*Node // in the order they became known
	unheard      int     // number of unheard nodes
}

// NewTable returns an empty table. locate may be nil; its answers are final.
func NewTable(silence int, locate func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)) *Table {
	return &Table{locate: locate, suspectTicks: uint64(silence), byID: map[sharding.NodeID]*Node{}}
}

// node returns the node with the id, and adds it if it is unknown.
func (t *Table) node(id sharding.NodeID) *Node {
	n := t.byID[id]
	if n == nil {
		n = &Node{ID: id, unheard: true, deadline: t.now + t.suspectTicks}
		t.byID[id] = n
		t.all = append(t.all, n)
		t.unheard++
	}
	return n
}

// markKnown marks a node as no longer unheard.
func (t *Table) markKnown(n *Node) {
	if n.unheard {
		n.unheard = false
		t.unheard--
	}
}

// MarkAlive marks a node as alive, and reports whether it was suspected.
func (t *Table) MarkAlive(id sharding.NodeID) (n *Node, back bool) {
	n = t.node(id)
	t.markKnown(n)
	back = n.suspected
	n.suspected = false
	return n, back
}

// MarkSuspected marks a node as suspected, and reports whether it was alive.
func (t *Table) MarkSuspected(id sharding.NodeID) (n *Node, lost bool) {
	n = t.node(id)
	t.markKnown(n)
	lost = !n.suspected
	n.suspected = true
	return n, lost
}

// Tick advances the clock.
func (t *Table) Tick() { t.now++ }

// ExpireNext finds the next unheard node whose deadline has passed, marks it as
// suspected and returns it. It returns nil if there is none.
func (t *Table) ExpireNext() *Node {
	if t.unheard == 0 {
		return nil
	}
	for _, n := range t.all {
		if n.unheard && t.now >= n.deadline {
			t.markKnown(n)
			n.suspected = true
			return n
		}
	}
	return nil
}

// Prune removes suspected nodes on which no replica lives any more, because
// these nodes have left.
func (t *Table) Prune(used func(*Node) bool) {
	t.all = slices.DeleteFunc(t.all, func(n *Node) bool {
		gone := n.suspected && !used(n)
		if gone {
			delete(t.byID, n.ID)
		}
		return gone
	})
}

// Count returns the number of known nodes and of suspected nodes.
func (t *Table) Count() (all, silent int) {
	for _, n := range t.all {
		if n.suspected {
			silent++
		}
	}
	return len(t.all), silent
}

// Frame collects messages for a node.
type Frame struct {
	b    []byte
	hint int // expected length: the length of the last frame plus a quarter
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

// Rotate returns the frame and starts the next frame.
func (f *Frame) Rotate() []byte {
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
