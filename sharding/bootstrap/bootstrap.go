// Package bootstrap elects the node that bootstraps a new cluster, so that
// nodes without data never create two clusters.
//
// A node that wants to bootstrap asks the other nodes for their bootstrap votes
// and bootstraps once it has enough of them, including its own. A node votes
// for at most one candidate at a time (its own candidacy counts) and keeps the
// vote until the candidate withdraws. It makes its vote durable before it
// answers. Two nodes that need the vote of a common third node therefore cannot
// both bootstrap.
//
// The required number of votes depends on whether the configuration or an
// operator asks for the bootstrap. If the node's configuration asks for it, the
// node needs the votes of all nodes that it knows, and at least the configured
// number of votes, because the configuration may be left over from before the
// node lost its disk. If an operator ordered the bootstrap, the node needs the
// votes of a majority of the nodes that it knows, counting itself, and none of
// the answering nodes may belong to a cluster. Two majorities of the same nodes
// overlap.
//
// If two nodes compete, a candidate ordered by an operator takes precedence
// over a candidate that was not, and otherwise the smaller node id wins. The
// loser votes for the winner and gives back the votes that it received. An
// ordered candidate keeps asking even while it has voted for a candidate of
// lower precedence, and bootstraps after that candidate has withdrawn.
//
// The package is pure: the caller sends the requests and makes the votes
// durable. It starts no goroutine.
package bootstrap

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Vote records which candidate a node voted for. The zero value is no vote.
type Vote struct {
	Node sharding.NodeID `json:"node,omitempty"`
	// Start and Round identify an attempt of that candidate.
	Start uint64 `json:"start,omitempty"`
	Round uint64 `json:"round,omitempty"`
	// Withdrawn means that the candidate gave the vote back. Attempts up to
	// this one no longer count.
	Withdrawn bool `json:"void,omitempty"`
	// Ordered means that an operator ordered the attempt.
	Ordered bool `json:"ordered,omitempty"`
}

// Answer is the answer of one node. The zero value stands for a node that did
// not answer.
type Answer struct {
	Node     sharding.NodeID
	VotedFor sharding.NodeID // candidate that the node voted for, empty if none
	Cluster  string          // cluster that the node belongs to, empty if none
}

func (p Vote) isOlderThan(o Vote) bool {
	return cmp.Or(cmp.Compare(p.Start, o.Start), cmp.Compare(p.Round, o.Round)) < 0
}

// takesPrecedence reports whether this attempt takes precedence over the
// attempt of another node.
func (p Vote) takesPrecedence(o Vote) bool {
	if p.Ordered != o.Ordered {
		return p.Ordered
	}
	return p.Node < o.Node
}

// Candidate is a node that belongs to no cluster yet. It belongs to one
// goroutine at a time.
type Candidate struct {
	self    sharding.NodeID
	start   uint64
	round   uint64
	vote    Vote
	decided bool
}

// New returns the candidate for one incarnation of a node. The vote is the
// node's stored vote.
func New(self sharding.NodeID, start uint64, given Vote) *Candidate {
	return &Candidate{self: self, start: start, vote: given}
}

// Vote returns the vote that must be durable before an answer is sent.
func (f *Candidate) Vote() Vote { return f.vote }

// HandleRequest handles a request from another node for this node's vote, or a
// withdrawal if back is true. It returns the candidate that this node votes for
// afterwards.
func (f *Candidate) HandleRequest(by Vote, back bool) (to sharding.NodeID) {
	same := f.vote.Node == by.Node
	switch {
	case f.decided || by.Node == f.self:
	case same && by.isOlderThan(f.vote): // the request is older than the vote
	case back:
		if same {
			f.vote = by
			f.vote.Withdrawn = true
		}
	case same && f.vote.Withdrawn && !f.vote.isOlderThan(by): // the attempt was already withdrawn
	case same, f.vote.Node == "", f.vote.Withdrawn, f.vote.Node == f.self && by.takesPrecedence(f.vote):
		f.vote = by
	}
	return f.votedFor()
}

func (f *Candidate) votedFor() sharding.NodeID {
	if f.vote.Withdrawn {
		return ""
	}
	return f.vote.Node
}

// Begin begins a round. wants says whether this node should bootstrap, and
// ordered whether an operator ordered it. It returns the request to send to the
// other nodes, and whether that request is a withdrawal. Nodes that do not want
// to bootstrap send withdrawals too, because an earlier incarnation of the node
// may have collected votes.
func (f *Candidate) Begin(wants, ordered bool) (ask Vote, back bool) {
	mine := f.votedFor() == f.self
	switch {
	case wants && !mine && f.votedFor() == "", wants && mine && (f.vote.Start != f.start || f.vote.Ordered != ordered):
		f.round++
		f.vote = Vote{Node: f.self, Start: f.start, Round: f.round, Ordered: ordered}
	case !wants && mine:
		f.vote = Vote{}
	}
	own := Vote{Node: f.self, Start: f.start, Round: f.round, Ordered: ordered}
	switch {
	case f.votedFor() == f.self:
		return f.vote, false
	case ordered && own.takesPrecedence(f.vote):
		// The candidate that this node voted for withdraws only if it is asked.
		f.round++
		own.Round = f.round
		return own, false
	}
	return own, true
}

// Decide reports whether this node bootstraps, given the answers to the round
// of an attempt. answers has one element for each node asked, and expect is the
// minimum number of nodes, including this node. Once Decide has returned true,
// the node no longer changes its vote.
func (f *Candidate) Decide(attempt Vote, expect int, answers []Answer) bool {
	if !f.decided && f.vote == attempt && f.votedFor() == f.self && f.hasQuorum(attempt.Ordered, expect, answers) {
		f.decided = true
	}
	return f.decided
}

// hasQuorum reports whether the answers contain enough votes for this node.
func (f *Candidate) hasQuorum(ordered bool, expect int, answers []Answer) bool {
	pledged, asked := []sharding.NodeID{f.self}, 1
	for _, a := range answers {
		if a.Node == f.self {
			continue // this node itself, reached at another of its addresses
		}
		asked++
		switch {
		case a.Cluster != "":
			return false
		case a.VotedFor != f.self:
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
