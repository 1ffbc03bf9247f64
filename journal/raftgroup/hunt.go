package raftgroup

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// A replica that knows its leader is gone does not wait for raft's election
// timeout: it asks for votes soon. The voters that are heard take turns, in an
// order that differs from group to group, so that one of them is alone and the
// leaderships spread; each asks huntAttempts times before it leaves the matter
// to the election timeout. Votes are asked for as raft does, before the term is
// raised, so a replica that is wrong about its leader disturbs nobody.
const (
	huntAttempts = 4
	// huntTurn lies between two voters' turns and huntRetry between the
	// attempts of one, in ticks. The others learn of the silence a little
	// earlier or later, and until then they refuse.
	huntTurn  = 2
	huntRetry = 3
)

// hunt makes the group campaign soon.
func (c *Core) hunt(g *group) {
	if !slices.Contains(g.conf.state.GetVoters(), g.replica) && !slices.Contains(g.conf.state.GetVotersOutgoing(), g.replica) {
		return
	}
	g.hunts, g.huntAt = 0, c.now+1+huntTurn*c.turnOf(g)
	if !g.hunting {
		g.hunting = true
		c.hunting = append(c.hunting, g)
	}
}

// turnOf is the replica's place among the voters that are heard, which begins
// at another voter for each group.
func (c *Core) turnOf(g *group) uint64 {
	var heard []uint64
	for _, id := range g.conf.state.GetVoters() {
		if id == g.replica || c.heard(g, id) {
			heard = append(heard, id)
		}
	}
	i := slices.Index(heard, g.replica)
	if i < 0 {
		return uint64(len(heard))
	}
	n := uint64(len(heard))
	return (uint64(i) + n - uint64(g.shard)%n) % n
}

// campaigns lets those groups campaign whose turn has come, so many a tick
// that their messages and votes fit into it.
func (c *Core) campaigns() {
	if len(c.hunting) == 0 {
		return
	}
	budget := c.opts.MaxCampaigns
	kept := c.hunting[:0]
	for _, g := range c.hunting {
		if g.huntAt > c.now || budget == 0 && !g.idleHunt() {
			kept = append(kept, g)
			continue
		}
		if g.idleHunt() {
			g.hunting = false
			continue
		}
		if g.node.BasicStatus().GetTerm() != g.term {
			// It has just voted, and hunts again if that leads to nothing.
			g.huntAt = c.now + huntRetry
			kept = append(kept, g)
			continue
		}
		budget--
		_ = g.node.Campaign()
		c.stats.Campaigns++
		c.touch(g)
		g.hunts++
		g.huntAt = c.now + huntRetry + uint64(g.hunts) + c.turnOf(g)
		if g.hunts >= huntAttempts || !g.quorum {
			g.hunting = false
			continue
		}
		kept = append(kept, g)
	}
	clear(c.hunting[len(kept):])
	c.hunting = kept
}

// asked follows a request for a vote: who hunts too lets the other one have its
// time, unless that cannot win because entries are missing to it.
func (c *Core) asked(g *group, m *pb.Message) {
	if !g.hunting {
		return
	}
	last := g.log.last()
	term, _ := g.log.Term(last)
	if m.GetLogTerm() < term || m.GetLogTerm() == term && m.GetIndex() < last {
		g.huntAt = min(g.huntAt, c.now+1)
	} else {
		g.huntAt = max(g.huntAt, c.now+huntRetry)
	}
}

// idleHunt says that there is nothing to hunt for: a leader is known.
func (g *group) idleHunt() bool {
	return g.leader || g.node.BasicStatus().Lead != raft.None
}
