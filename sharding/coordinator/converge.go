package coordinator

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Conf is a group's membership as its leader, the replica Self, has applied it.
type Conf struct {
	Self                       sharding.ReplicaID
	Voters, Learners, Outgoing []sharding.ReplicaID
	// Match is how far each member's log agrees with the leader's.
	Match  map[sharding.ReplicaID]uint64
	Commit uint64
	// Silent are members that do not answer the leader, or are on nodes that its
	// node does not hear now.
	Silent []sharding.ReplicaID
	// Next is the view's NextReplica: a member with an id from there on is
	// newer than the view.
	Next sharding.ReplicaID
}

// Change is the next step of a group's membership. Either Transfer names the
// voter that the leader hands over to, and nothing else is set, or the rest is
// proposed as one change, a joint one if it has several parts.
type Change struct {
	AddLearners, AddVoters, Remove []sharding.ReplicaID
	Transfer                       sharding.ReplicaID
}

// Converge returns the next step from the membership to the placement, false
// if there is none to take now. It is for the leader of the group, in a view
// of the metadata that it caught up with after it was elected.
//
// New members begin as learners. When all that are to vote have caught up, one
// change promotes them, demotes and removes. A vote is taken from nobody
// before, and never so that fewer than a quorum of the voters that remain are
// heard and up to date. A leader that is to lose its vote hands over first; if
// no voter stays beside it, the new ones are promoted beside it before. One
// that lost its vote all the same, because it was elected while the change was
// under way, hands over then: it must go on until a voter has learned from it
// that the change is committed, since the voter may not be able to win an
// election before.
func Converge(p meta.Placement, c Conf) (Change, bool) {
	if len(c.Outgoing) > 0 {
		return Change{}, false
	}
	g := goalOf(p, c)
	if !slices.Contains(c.Voters, c.Self) {
		heir, ok := c.heir(goal{voters: c.Voters})
		return Change{Transfer: heir}, ok
	}
	if g.newer {
		return Change{}, false
	}
	if len(g.missing) > 0 {
		return Change{AddLearners: g.missing}, true
	}
	ready := !slices.ContainsFunc(g.promote, func(id sharding.ReplicaID) bool { return !c.ready(id) })
	if !ready || !c.quorum(g.voters) {
		return g.withoutVotes()
	}
	if !g.drops(c.Self) {
		ch := Change{AddVoters: g.promote, AddLearners: g.demote, Remove: slices.Concat(g.removeVoters, g.removeLearners)}
		return ch, ch.any()
	}
	if heir, ok := c.heir(g); ok {
		return Change{Transfer: heir}, true
	}
	if len(g.promote) > 0 && c.quorum(slices.Concat(c.Voters, g.promote)) {
		return Change{AddVoters: g.promote}, true
	}
	return g.withoutVotes()
}

func (c Change) any() bool {
	return len(c.AddLearners)+len(c.AddVoters)+len(c.Remove) > 0
}

// goal is where a membership has to go.
type goal struct {
	voters                       []sharding.ReplicaID // in the end
	missing                      []sharding.ReplicaID // not members yet
	promote, demote              []sharding.ReplicaID
	removeVoters, removeLearners []sharding.ReplicaID
	// newer: the group has a member that the view does not know of yet.
	newer bool
}

func goalOf(p meta.Placement, c Conf) goal {
	var g goal
	for _, r := range p.Replicas {
		voter, learner := slices.Contains(c.Voters, r.ID), slices.Contains(c.Learners, r.ID)
		if r.State == meta.ReplicaVoter {
			g.voters = append(g.voters, r.ID)
		}
		switch {
		case r.State == meta.ReplicaLeaving && voter:
			g.removeVoters = append(g.removeVoters, r.ID)
		case r.State == meta.ReplicaLeaving && learner:
			g.removeLearners = append(g.removeLearners, r.ID)
		case r.State == meta.ReplicaLeaving:
		case !voter && !learner:
			if !r.Lost {
				g.missing = append(g.missing, r.ID)
			}
		case r.State == meta.ReplicaVoter && learner:
			g.promote = append(g.promote, r.ID)
		case r.State == meta.ReplicaLearner && voter:
			g.demote = append(g.demote, r.ID)
		}
	}
	// A member that was forgotten can only have come back through a view that
	// was behind.
	for _, id := range c.Voters {
		if _, known := p.Replica(id); !known {
			g.newer = g.newer || id >= c.Next
			g.removeVoters = append(g.removeVoters, id)
		}
	}
	for _, id := range c.Learners {
		if _, known := p.Replica(id); !known {
			g.newer = g.newer || id >= c.Next
			g.removeLearners = append(g.removeLearners, id)
		}
	}
	return g
}

// drops says whether the replica loses its vote.
func (g *goal) drops(id sharding.ReplicaID) bool { return !slices.Contains(g.voters, id) }

// withoutVotes is the part of the way that touches nobody's vote.
func (g *goal) withoutVotes() (Change, bool) {
	return Change{Remove: g.removeLearners}, len(g.removeLearners) > 0
}

// ready says whether the member may be counted on: it is heard and its log is
// near the leader's.
func (c *Conf) ready(id sharding.ReplicaID) bool {
	return id == c.Self || !slices.Contains(c.Silent, id) && CaughtUp(c.Match[id], c.Commit)
}

// quorum says whether a majority of the voters may be counted on.
func (c *Conf) quorum(voters []sharding.ReplicaID) bool {
	n := 0
	for _, id := range voters {
		if c.ready(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// heir is the voter that stays and is furthest ahead.
func (c *Conf) heir(g goal) (sharding.ReplicaID, bool) {
	var able []sharding.ReplicaID
	for _, id := range c.Voters {
		if id != c.Self && slices.Contains(g.voters, id) && c.ready(id) {
			able = append(able, id)
		}
	}
	if len(able) == 0 {
		return 0, false
	}
	return slices.MinFunc(able, func(a, b sharding.ReplicaID) int {
		return cmp.Or(cmp.Compare(c.Match[b], c.Match[a]), cmp.Compare(a, b))
	}), true
}
