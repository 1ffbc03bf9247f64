package coordinator

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Conf is the membership of a group as its leader, the replica Self, has
// applied it.
type Conf struct {
	Self                       sharding.ReplicaID
	Voters, Learners, Outgoing []sharding.ReplicaID
	// Match is the highest log index up to which each member is known to agree
	// with the leader.
	Match  map[sharding.ReplicaID]uint64
	Commit uint64
	// Unreachable are members that do not answer the leader, or whose nodes
	// this node cannot reach now.
	Unreachable []sharding.ReplicaID
	// Next is the view's NextReplica. Members with this or a higher id are
	// newer than the view.
	Next sharding.ReplicaID
}

// Change is the next step of a group's membership. Either only Transfer is set,
// to the voter that should take over leadership, or the other fields are
// proposed as one membership change, which is joint if it has several parts.
type Change struct {
	AddLearners, AddVoters, Remove []sharding.ReplicaID
	Transfer                       sharding.ReplicaID
}

// Converge returns the next step from the current membership to the placement,
// or false if no step is possible now. The leader of the group calls it with a
// view of the metadata that is at least as new as its election.
//
// New members start as learners. When all future voters have caught up, a
// single change promotes, demotes and removes members. Until then, no voter
// loses its vote. The change also requires that a quorum of the remaining
// voters is reachable and caught up.
//
// A leader that is about to lose its vote first transfers leadership. If no
// current voter stays, the new voters are promoted before the transfer. A
// leader may still find itself without a vote, if it was elected while the
// change was in flight. It then continues to lead until a voter has learned
// from it that the change is committed, and transfers leadership to that voter.
// Until the voter has learned this, it may be unable to win an election.
func Converge(p meta.Placement, c Conf) (Change, bool) {
	if len(c.Outgoing) > 0 {
		return Change{}, false
	}
	g := goalOf(p, c)
	if !slices.Contains(c.Voters, c.Self) {
		heir, ok := c.transferTarget(goal{voters: c.Voters})
		return Change{Transfer: heir}, ok
	}
	if g.hasNewerMember {
		return Change{}, false
	}
	if len(g.missing) > 0 {
		return Change{AddLearners: g.missing}, true
	}
	ready := !slices.ContainsFunc(g.promote, func(id sharding.ReplicaID) bool { return !c.isReady(id) })
	if !ready || !c.hasQuorum(g.voters) {
		return g.removeLearnersOnly()
	}
	if !g.losesVote(c.Self) {
		ch := Change{AddVoters: g.promote, AddLearners: g.demote, Remove: slices.Concat(g.removeVoters, g.removeLearners)}
		return ch, ch.isNonEmpty()
	}
	if heir, ok := c.transferTarget(g); ok {
		return Change{Transfer: heir}, true
	}
	if len(g.promote) > 0 && c.hasQuorum(slices.Concat(c.Voters, g.promote)) {
		return Change{AddVoters: g.promote}, true
	}
	return g.removeLearnersOnly()
}

func (c Change) isNonEmpty() bool {
	return len(c.AddLearners)+len(c.AddVoters)+len(c.Remove) > 0
}

// goal is the difference between a membership and its placement.
type goal struct {
	voters                       []sharding.ReplicaID // voters of the placement
	missing                      []sharding.ReplicaID // not yet members
	promote, demote              []sharding.ReplicaID
	removeVoters, removeLearners []sharding.ReplicaID
	// hasNewerMember means that the group has a member that is newer than the
	// view.
	hasNewerMember bool
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
	// A member that was already forgotten can only have come back through an
	// outdated view, so remove it.
	for _, id := range c.Voters {
		if _, known := p.Replica(id); !known {
			g.hasNewerMember = g.hasNewerMember || id >= c.Next
			g.removeVoters = append(g.removeVoters, id)
		}
	}
	for _, id := range c.Learners {
		if _, known := p.Replica(id); !known {
			g.hasNewerMember = g.hasNewerMember || id >= c.Next
			g.removeLearners = append(g.removeLearners, id)
		}
	}
	return g
}

// losesVote reports whether the replica loses its vote.
func (g *goal) losesVote(id sharding.ReplicaID) bool { return !slices.Contains(g.voters, id) }

// removeLearnersOnly returns the part of the change that affects no vote.
func (g *goal) removeLearnersOnly() (Change, bool) {
	return Change{Remove: g.removeLearners}, len(g.removeLearners) > 0
}

// isReady reports whether the member can be relied on: it is reachable and its
// log is close to the leader's.
func (c *Conf) isReady(id sharding.ReplicaID) bool {
	return id == c.Self || !slices.Contains(c.Unreachable, id) && IsCaughtUp(c.Match[id], c.Commit)
}

// hasQuorum reports whether a majority of the voters is ready.
func (c *Conf) hasQuorum(voters []sharding.ReplicaID) bool {
	n := 0
	for _, id := range voters {
		if c.isReady(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// transferTarget returns the most advanced voter that keeps its vote.
func (c *Conf) transferTarget(g goal) (sharding.ReplicaID, bool) {
	var able []sharding.ReplicaID
	for _, id := range c.Voters {
		if id != c.Self && slices.Contains(g.voters, id) && c.isReady(id) {
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
