package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// peerNode is a node on which members of groups here live. The caller, which
// sees the incoming bytes, reports whether the node is alive or suspected:
//
//	unheard ─ MarkAlive ─▶ alive ◀─ MarkAlive ─ suspected
//	   │                    │                      ▲
//	   │                    └─── MarkSuspected ────┤
//	   └─ MarkSuspected, or ExpireNext, once due ──┘
//
// A node from which nothing has arrived counts as alive until its deadline.
type peerNode struct {
	ID sharding.NodeID
	// Frame collects messages for the node. It is used by the sender.
	Frame outgoingFrame

	suspected bool
	// unheard means that nothing has arrived from the node since it became
	// known. The node becomes suspected at tick deadline.
	unheard  bool
	deadline uint64
}

// IsSuspected reports whether the node is suspected.
func (n *peerNode) IsSuspected() bool { return n.suspected }

// nodeTable tracks the other nodes as this node's groups see them: which are
// alive and which are suspected. It counts ticks and reads no clock.
type nodeTable struct {
	placement    Placement // may be nil
	suspectTicks uint64    // number of ticks after which an unheard node is suspected
	now          uint64
	byID         map[sharding.NodeID]*peerNode
	all          []*peerNode // in the order they became known
	unheard      int         // number of unheard nodes
}

// newNodeTable returns an empty table. placement may be nil; the nodes that it
// locates are final.
func newNodeTable(silence int, placement Placement) *nodeTable {
	return &nodeTable{placement: placement, suspectTicks: uint64(silence), byID: map[sharding.NodeID]*peerNode{}}
}

// node returns the node with the id, and adds it if it is unknown.
func (t *nodeTable) node(id sharding.NodeID) *peerNode {
	n := t.byID[id]
	if n == nil {
		n = &peerNode{ID: id, unheard: true, deadline: t.now + t.suspectTicks}
		t.byID[id] = n
		t.all = append(t.all, n)
		t.unheard++
	}
	return n
}

// markKnown marks a node as no longer unheard.
func (t *nodeTable) markKnown(n *peerNode) {
	if n.unheard {
		n.unheard = false
		t.unheard--
	}
}

// MarkAlive marks a node as alive, and reports whether it was suspected.
func (t *nodeTable) MarkAlive(id sharding.NodeID) (n *peerNode, back bool) {
	n = t.node(id)
	t.markKnown(n)
	back = n.suspected
	n.suspected = false
	return n, back
}

// MarkSuspected marks a node as suspected, and reports whether it was alive.
func (t *nodeTable) MarkSuspected(id sharding.NodeID) (n *peerNode, lost bool) {
	n = t.node(id)
	t.markKnown(n)
	lost = !n.suspected
	n.suspected = true
	return n, lost
}

// Tick advances the clock.
func (t *nodeTable) Tick() { t.now++ }

// ExpireNext finds the next unheard node whose deadline has passed, marks it as
// suspected and returns it. It returns nil if there is none.
func (t *nodeTable) ExpireNext() *peerNode {
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
func (t *nodeTable) Prune(used func(*peerNode) bool) {
	t.all = slices.DeleteFunc(t.all, func(n *peerNode) bool {
		gone := n.suspected && !used(n)
		if gone {
			delete(t.byID, n.ID)
		}
		return gone
	})
}

// Count returns the number of known nodes and of suspected nodes.
func (t *nodeTable) Count() (all, silent int) {
	for _, n := range t.all {
		if n.suspected {
			silent++
		}
	}
	return len(t.all), silent
}

// outgoingFrame collects messages for a node.
type outgoingFrame struct {
	b    []byte
	hint int // expected length: the length of the last frame plus a quarter
}

// Add adds a message; first reports that it started a frame.
func (f *outgoingFrame) Add(m *wire.Message) (first bool) {
	if first = f.b == nil; first {
		f.b = wire.BeginFrame(make([]byte, 0, f.hint))
	}
	f.b = wire.AppendMessage(f.b, m)
	return first
}

// Len returns the length of the frame.
func (f *outgoingFrame) Len() int { return len(f.b) }

// Rotate returns the frame and starts the next frame.
func (f *outgoingFrame) Rotate() []byte {
	b := f.take()
	f.b = wire.BeginFrame(nil)
	return b
}

// End returns the frame, or nil if it has no messages.
func (f *outgoingFrame) End() []byte {
	if len(f.b) <= wire.FrameHeadBytes {
		f.b = nil
		return nil
	}
	return f.take()
}

func (f *outgoingFrame) take() []byte {
	b := f.b
	f.b, f.hint = nil, len(b)+len(b)/4
	return wire.EndFrame(b)
}
