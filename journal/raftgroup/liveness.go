package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// PeerAlive reports that a node is alive because a byte arrived from it.
func (c *Core) PeerAlive(node sharding.NodeID) {
	n, back := c.nodes.MarkAlive(node)
	if !back {
		return
	}
	for _, g := range c.order {
		if g.hasMemberOn(n) {
			c.onMemberAlive(g)
		}
	}
}

// PeerSuspected reports that a node is suspected: no byte has arrived from it
// for so long that it counts as dead, or a new incarnation of it shows that its
// previous process has ended.
func (c *Core) PeerSuspected(node sharding.NodeID) {
	if n, lost := c.nodes.MarkSuspected(node); lost {
		c.onNodeSuspected(n)
	}
}

// PeerFailed reports that the process of a node seems to have failed: its
// kernel closed its connections and refuses new connections. All nodes see this
// at the same moment, so elections begin immediately. In all other respects,
// PeerFailed is like PeerSuspected.
func (c *Core) PeerFailed(node sharding.NodeID) {
	if n, lost := c.nodes.MarkSuspected(node); lost {
		c.onNodeSuspected(n)
		c.elections.Expedite(c.now)
	}
}

// onNodeSuspected handles a node that became suspected.
func (c *Core) onNodeSuspected(n *peerNode) {
	for _, g := range c.order {
		if g.hasMemberOn(n) {
			c.onMemberSuspected(g, n)
		}
	}
	prune(c.nodes, c.order)
}

// prune removes suspected nodes on which no replica of the groups is known to
// live.
func prune(known *nodeTable, groups []*group) {
	known.Prune(func(n *peerNode) bool {
		return slices.ContainsFunc(groups, func(g *group) bool { return g.routes.HasNode(n) })
	})
}

// onMemberSuspected handles a suspected node on which a member of the group lives. A leader
// stays leader while it sees a quorum. A follower whose leader is on that node
// looks for another leader.
func (c *Core) onMemberSuspected(g *group, p *peerNode) {
	c.updateQuorum(g)
	if g.failed {
		return
	}
	defer c.recoverPanic(g)
	status := g.raw.BasicStatus()
	switch {
	case status.RaftState == raft.StateLeader:
		c.clocks.wake(g)
		if !g.quorum {
			c.stepDown(g)
			g.requestElection(c.elections, c.now)
			return
		}
		if heir := status.LeadTransferee; heir != raft.None && g.routes.Locate(heir) == p {
			g.abortTransfer()
			c.markDirty(g)
		}
		g.node().WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
			if id != g.replica && g.routes.Locate(id) == p {
				g.node().ReportUnreachable(id)
			}
		})
	case status.Lead != raft.None && g.routes.Locate(status.Lead) == p:
		c.forgetLeader(g)
	}
}

// abortTransfer aborts a leadership transfer to a replica that will not accept
// the leadership, because proposals would otherwise wait for an election
// timeout. If the replica accepts the leadership after all, it leads in a later
// term, as after any election.
func (g *group) abortTransfer() {
	g.node().TransferLeader(g.replica) // transferring to itself aborts the transfer in progress
}

// onMemberAlive handles a node that is alive again. A member on that node may
// have missed entries, and a leaderless group may have a quorum now.
func (c *Core) onMemberAlive(g *group) {
	c.updateQuorum(g)
	if g.failed {
		return
	}
	switch status := g.raw.BasicStatus(); {
	case status.RaftState == raft.StateLeader:
		c.clocks.wake(g)
	case status.Lead == raft.None:
		g.requestElection(c.elections, c.now)
	}
}

// forgetLeader drops the known leader, so that the replica may vote at once and
// campaign soon.
func (c *Core) forgetLeader(g *group) {
	c.clocks.wake(g)
	_ = g.node().ForgetLeader()
	g.requestElection(c.elections, c.now)
	c.markDirty(g)
}

// stepDown makes a leader without a quorum step down, using raft's own quorum
// check. It steps two check messages: the first marks the other members as
// inactive, so the second finds no quorum. No other message can come between
// them. The leader's proposals have an unknown outcome, as with any lost
// leadership.
func (c *Core) stepDown(g *group) {
	c.clocks.wake(g)
	for range 2 {
		_ = g.node().Step(&pb.Message{Type: pb.MsgCheckQuorum.Enum(), From: new(raft.LocalAppendThread)})
	}
	c.markDirty(g)
}

// updateQuorum recomputes whether the alive nodes are a quorum of the voters.
func (c *Core) updateQuorum(g *group) {
	s := g.conf.State
	g.unlocated = false
	ok := g.majority(s.GetVoters())
	if out := s.GetVotersOutgoing(); len(out) > 0 {
		ok = g.majority(out) && ok
	}
	if g.quorum != ok {
		g.quorum = ok
		c.markDirty(g)
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

// majority reports whether a majority of the voters is alive.
func (g *group) majority(voters []uint64) bool {
	heard := 0
	for _, id := range voters {
		if id == g.replica {
			if g.canVote() {
				heard++
			}
		} else if p := g.routes.Locate(id); p == nil {
			g.unlocated = true
		} else if !p.IsSuspected() {
			heard++
		}
	}
	return heard > len(voters)/2
}

// memberLists returns the members by role, including the outgoing voters of a joint
// membership. A replica may be in two of the lists.
func (g *group) memberLists() [4][]uint64 {
	s := g.conf.State
	return [4][]uint64{s.GetVoters(), s.GetVotersOutgoing(), s.GetLearners(), s.GetLearnersNext()}
}

// isMember reports whether a replica is in the membership as applied here.
func (g *group) isMember(replica uint64) bool {
	for _, list := range g.memberLists() {
		if slices.Contains(list, replica) {
			return true
		}
	}
	return false
}

// hasMemberOn reports whether another member lives on the node.
func (g *group) hasMemberOn(n *peerNode) bool {
	for _, list := range g.memberLists() {
		for _, id := range list {
			if id != g.replica && g.routes.Locate(id) == n {
				return true
			}
		}
	}
	return false
}
