// Package founding decides which of several nodes without data founds their
// cluster, so that no two do. A node that wants to asks those that it has to
// hear from for their pledge, and founds when it has all of them and its own.
// A node gives one pledge at a time, its own counted, and keeps it until it is
// given back; what it pledged is durable before it answers. Two nodes that have
// to hear from a common one can therefore not both found.
//
// A node that is told to by its configuration has to hear from all that it
// knows, or from as many as it is told: the order may be left over from before
// its disk was lost. One that an operator orders to has to hear from a majority
// of those, itself counted; none of them may belong to a cluster. Two
// majorities of the same nodes have a node in common.
//
// Of two that want to, one that was ordered to goes before one that was not,
// and then the one with the smaller name: the other gives its own pledge to
// that one, and gives back what it was pledged. One that was ordered to asks
// even while it is pledged to one that goes behind it, and founds when that one
// has given it back.
//
// The package is pure: who is asked, and what is durable, is the caller's.
// It starts no goroutine.
package founding

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Pledge is to whom a node gave its word; the zero value is to nobody.
type Pledge struct {
	Node sharding.NodeID `json:"node,omitempty"`
	// Start and Round number the attempts of that node.
	Start uint64 `json:"start,omitempty"`
	Round uint64 `json:"round,omitempty"`
	// Void says that it was given back: an attempt up to this one counts no more.
	Void bool `json:"void,omitempty"`
	// Ordered says that an operator ordered the attempt.
	Ordered bool `json:"ordered,omitempty"`
}

// Answer is what one of those that were asked said; the zero value is of one
// that said nothing.
type Answer struct {
	Node    sharding.NodeID
	To      sharding.NodeID // whom it is pledged to, empty for nobody
	Cluster string          // that it belongs to, empty for none
}

func (p Pledge) before(o Pledge) bool {
	return cmp.Or(cmp.Compare(p.Start, o.Start), cmp.Compare(p.Round, o.Round)) < 0
}

// first says whether the attempt goes before that of another node.
func (p Pledge) first(o Pledge) bool {
	if p.Ordered != o.Ordered {
		return p.Ordered
	}
	return p.Node < o.Node
}

// Founder is a node without a cluster. It belongs to one goroutine at a time.
type Founder struct {
	self    sharding.NodeID
	start   uint64
	round   uint64
	given   Pledge
	decided bool
}

// New makes the founder of a start of a node, with what it has pledged before.
func New(self sharding.NodeID, start uint64, given Pledge) *Founder {
	return &Founder{self: self, start: start, given: given}
}

// Given is what must be durable before an answer goes out.
func (f *Founder) Given() Pledge { return f.given }

// Asked answers another node that asks for the pledge of this one, or gives it
// back. It returns to whom this node is pledged then.
func (f *Founder) Asked(by Pledge, back bool) (to sharding.NodeID) {
	same := f.given.Node == by.Node
	switch {
	case f.decided || by.Node == f.self:
	case same && by.before(f.given): // it is late
	case back:
		if same {
			f.given = by
			f.given.Void = true
		}
	case same && f.given.Void && !f.given.before(by): // likewise
	case same, f.given.Node == "", f.given.Void, f.given.Node == f.self && by.first(f.given):
		f.given = by
	}
	return f.to()
}

func (f *Founder) to() sharding.NodeID {
	if f.given.Void {
		return ""
	}
	return f.given.Node
}

// Begin begins a round: wants says whether this node is to found, ordered
// whether an operator says so. It returns what the others are to be sent, and
// whether that gives their pledges back: an earlier start of this node may have
// asked for some.
func (f *Founder) Begin(wants, ordered bool) (ask Pledge, back bool) {
	mine := f.to() == f.self
	switch {
	case wants && !mine && f.to() == "", wants && mine && (f.given.Start != f.start || f.given.Ordered != ordered):
		f.round++
		f.given = Pledge{Node: f.self, Start: f.start, Round: f.round, Ordered: ordered}
	case !wants && mine:
		f.given = Pledge{}
	}
	own := Pledge{Node: f.self, Start: f.start, Round: f.round, Ordered: ordered}
	switch {
	case f.to() == f.self:
		return f.given, false
	case ordered && own.first(f.given):
		// Whoever it is pledged to gives way only when asked.
		f.round++
		own.Round = f.round
		return own, false
	}
	return own, true
}

// Decide says whether this node founds by what came back in the round of an
// attempt: answers has one for each that was asked, expect is the least number
// of nodes that there have to be, this one counted. After it founds it pledges
// itself to nobody.
func (f *Founder) Decide(attempt Pledge, expect int, answers []Answer) bool {
	if !f.decided && f.given == attempt && f.to() == f.self && f.enough(attempt.Ordered, expect, answers) {
		f.decided = true
	}
	return f.decided
}

// enough says whether those that are pledged to this node are.
func (f *Founder) enough(ordered bool, expect int, answers []Answer) bool {
	pledged, asked := []sharding.NodeID{f.self}, 1
	for _, a := range answers {
		if a.Node == f.self {
			continue // by another of its addresses
		}
		asked++
		switch {
		case a.Cluster != "":
			return false
		case a.To != f.self:
			if !ordered {
				return false
			}
		case !slices.Contains(pledged, a.Node):
			pledged = append(pledged, a.Node)
		}
	}
	if ordered {
		return len(pledged) > max(asked, expect)/2
	}
	return len(pledged) >= expect
}
