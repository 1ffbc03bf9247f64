package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/nodes"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// PeerHeard says that a byte came from a node.
func (c *Core) PeerHeard(node sharding.NodeID) {
	n, back := c.nodes.Heard(node)
	if !back {
		return
	}
	for _, g := range c.order {
		if g.keptOn(n) {
			c.gained(g)
		}
	}
}

// PeerSilent says that no byte came from a node for so long that it counts as
// dead, or that its process has ended, as a new incarnation of it shows.
func (c *Core) PeerSilent(node sharding.NodeID) {
	if n, lost := c.nodes.Silence(node); lost {
		c.lose(n)
	}
}

// PeerGone says that the process of a node seems to have ended: its kernel has
// closed its connections and refuses others. All nodes see that at once, so
// elections begin now. Otherwise it is PeerSilent.
func (c *Core) PeerGone(node sharding.NodeID) {
	if n, lost := c.nodes.Silence(node); lost {
		c.lose(n)
		c.elections.Hasten(c.now)
	}
}

// lose follows the silence of a node.
func (c *Core) lose(n *nodes.Node) {
	for _, g := range c.order {
		if g.keptOn(n) {
			c.lost(g, n)
		}
	}
	prune(c.nodes, c.order)
}

// prune forgets silent nodes that no replica of the groups is known to live on.
func prune(known *nodes.Table, groups []*group) {
	known.Prune(func(n *nodes.Node) bool {
		return slices.ContainsFunc(groups, func(g *group) bool { return g.routes.Through(n) })
	})
}

// lost follows the silence of a node that a member of the group lives on. The
// leader stays while it hears a quorum; a follower of a leader on that node
// looks for another.
func (c *Core) lost(g *group, p *nodes.Node) {
	c.reckon(g)
	if g.failed {
		return
	}
	defer c.contain(g)
	status := g.node.BasicStatus()
	switch {
	case status.RaftState == raft.StateLeader:
		c.clocks.wake(g)
		if !g.quorum {
			c.stepAside(g)
			g.call(c.elections, c.now)
			return
		}
		if heir := status.LeadTransferee; heir != raft.None && g.routes.Locate(heir) == p {
			g.keep()
			c.touch(g)
		}
		g.node.WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
			if id != g.replica && g.routes.Locate(id) == p {
				g.node.ReportUnreachable(id)
			}
		})
	case status.Lead != raft.None && g.routes.Locate(status.Lead) == p:
		c.forget(g)
	}
}

// keep ends a transfer of the leadership to who will not take it: what is
// proposed would wait for an election timeout. If it does take it after all, it
// leads in a later term, as after any election.
func (g *group) keep() {
	g.node.TransferLeader(g.replica) // which raft has already: it ends the one under way
}

// gained follows a node that is heard again: a member on it may have missed
// something, and a group without a leader may have a quorum now.
func (c *Core) gained(g *group) {
	c.reckon(g)
	if g.failed {
		return
	}
	switch status := g.node.BasicStatus(); {
	case status.RaftState == raft.StateLeader:
		c.clocks.wake(g)
	case status.Lead == raft.None:
		g.call(c.elections, c.now)
	}
}

// forget makes the replica one without a leader, which may vote at once, and
// campaign soon.
func (c *Core) forget(g *group) {
	c.clocks.wake(g)
	_ = g.node.ForgetLeader()
	g.call(c.elections, c.now)
	c.touch(g)
}

// stepAside ends a leadership that hears no quorum. Raft's own check does it:
// the first one of the two marks the others as not active, and so the second
// finds no quorum of them. Nothing can come in between, and what the leader
// had proposed is of an unknown outcome, as with any lost leadership.
func (c *Core) stepAside(g *group) {
	c.clocks.wake(g)
	for range 2 {
		_ = g.node.Step(&pb.Message{Type: pb.MsgCheckQuorum.Enum(), From: new(raft.LocalAppendThread)})
	}
	c.touch(g)
}

// reckon counts anew whether the nodes heard are a quorum of the voters.
func (c *Core) reckon(g *group) {
	s := g.conf.State
	g.unlocated = false
	ok := g.majority(s.GetVoters())
	if out := s.GetVotersOutgoing(); len(out) > 0 {
		ok = g.majority(out) && ok
	}
	if g.quorum != ok {
		g.quorum = ok
		c.touch(g)
	}
	for _, list := range [][]uint64{s.GetLearners(), s.GetLearnersNext()} {
		g.majority(list)
	}
	if i := slices.Index(c.unlocated, g); g.unlocated && i < 0 {
		c.unlocated = append(c.unlocated, g)
	} else if !g.unlocated && i >= 0 {
		c.unlocated = slices.Delete(c.unlocated, i, i+1)
	}
}

// majority says whether most of the voters are heard.
func (g *group) majority(voters []uint64) bool {
	heard := 0
	for _, id := range voters {
		if id == g.replica {
			if g.able() {
				heard++
			}
		} else if p := g.routes.Locate(id); p == nil {
			g.unlocated = true
		} else if !p.Silent() {
			heard++
		}
	}
	return heard > len(voters)/2
}

// lists are the members by role, with the outgoing ones of a joint membership.
// A replica may be in two of them.
func (g *group) lists() [4][]uint64 {
	s := g.conf.State
	return [4][]uint64{s.GetVoters(), s.GetVotersOutgoing(), s.GetLearners(), s.GetLearnersNext()}
}

// member says whether a replica is in the membership as applied here.
func (g *group) member(replica uint64) bool {
	for _, list := range g.lists() {
		if slices.Contains(list, replica) {
			return true
		}
	}
	return false
}

// keptOn says whether another member lives on the node.
func (g *group) keptOn(n *nodes.Node) bool {
	for _, list := range g.lists() {
		for _, id := range list {
			if id != g.replica && g.routes.Locate(id) == n {
				return true
			}
		}
	}
	return false
}
