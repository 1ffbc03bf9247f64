package raftgroup

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A group with nothing to do sleeps: its clock stands still on every replica,
// and it costs nothing until it is woken.
//
//	        leader: rests, see resting          follower: the leader says sleep,
//	        and says so to the others           and it agrees, see agrees
//	awake ─────────────────────────────────────────────────────────────▶ asleep
//	  ▲                                                                     │
//	  └─── a proposal, a read, a transfer, a change of members; a message ──┘
//	       of a member; anything raft wants done; the node of another
//	       member going silent or being heard again (leader), the leader's
//	       node going silent (follower)
//
// A replica without a leader never sleeps, nor does one whose leader is on a
// silent node, nor one in a joint membership. Other transitions panic.
//
// Nothing is unsafe about it: a clock that stands still is a slow clock, and
// raft's safety does not depend on clocks. Votes, commits and confirmations of
// reads go their usual way, which begins by waking; there is no lease.
//
// Nobody sleeps for ever when there is something to do:
//
//   - What the group has to do begins with an input to a replica, which wakes
//     it. A leader that is awake sends heartbeats, which wake the others.
//   - A follower slept because its leader said so, in that leader's term, and
//     its node is heard. While the leader stays one, it is enough that it is
//     woken. It stops being one only by a message of a later term, which came
//     from a member that is awake, by silence around it, or by its process'
//     end. In the first case there is a later leader that sends heartbeats to
//     every member and sleeps only when the follower agrees with it, or is
//     silent to it and so will be heard again. In the others the replica that
//     led is awake and without a leader: it asks all members for votes or
//     wakes them, and who asks for votes or wakes others leads no more, which
//     its followers conclude. If it cannot be heard, its node goes silent to
//     them, and they forget it.
//   - A leader slept while all members that it hears held its whole log and
//     knew it to be committed, or were told so and say so if they disagree.
//     A member that missed something is on a node that was silent: as soon as
//     that is heard again the leader is awake and sends it. A member that
//     forgot, as by a restart, has no leader and wakes the others.
//   - Messages get lost: a follower that is awake and hears nothing of its
//     leader wakes it, again and again, and one without a leader wakes all
//     members that it hears.
type sleeping struct {
	asleep bool
	// idle counts the ticks in which nothing but heartbeats happened; unheard
	// those without a message of the leader.
	idle, unheard int
	place         int // in Core.ticking, from 1; 0 means not there
}

// start puts the group among those whose clock goes, stop takes it out.
func (c *Core) startClock(g *group) {
	if g.place == 0 {
		c.ticking = append(c.ticking, g)
		g.place = len(c.ticking)
	}
}

func (c *Core) stopClock(g *group) {
	if g.place == 0 {
		return
	}
	last := len(c.ticking) - 1
	moved := c.ticking[last]
	c.ticking[g.place-1], moved.place = moved, g.place
	c.ticking[last] = nil
	c.ticking = c.ticking[:last]
	g.place = 0
}

// wake lets the clock go on, or the time until the group may sleep begin anew.
func (c *Core) wake(g *group) {
	g.idle = 0
	if g.asleep {
		g.asleep, g.unheard = false, 0
		c.stats.Wakes++
		c.startClock(g)
	}
}

// sleep lets the clock stand still.
func (c *Core) sleep(g *group) {
	if g.asleep || g.lead == raft.None || g.place == 0 || g.held || g.joint() {
		panic("raftgroup: a group that must not sleep")
	}
	g.asleep = true
	c.stats.Sleeps++
	c.stopClock(g)
}

// rest lets a leader sleep if it may, and says so to the others.
func (c *Core) rest(g *group) bool {
	if g.idle < c.opts.QuiesceTicks || !c.resting(g) {
		return false
	}
	commit := g.hard.commit
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
		if id != g.replica && c.heard(g, id) {
			c.outbox = append(c.outbox, Message{Shard: g.shard, to: c.locate(g, id), note: noteSleep, Raft: &pb.Message{
				Type: pb.MsgHeartbeat.Enum(), From: new(g.replica), To: new(id), Term: new(g.term), Commit: new(commit),
			}})
		}
	})
	c.sleep(g)
	return true
}

// resting says whether a leader may sleep: nothing waits here or in raft, the
// whole log is committed and applied, and each member that is heard holds it
// and answers. A member on a silent node is not waited for.
func (c *Core) resting(g *group) bool {
	last := g.log.last()
	if !g.leader || !g.readable || !g.quorum || g.unlocated || g.held || g.rewrite || g.confUnwritten || g.joint() ||
		len(g.proposals)+len(g.reads)+len(g.rounds) > 0 || g.hard.commit != last || g.applied != last || g.node.HasReady() {
		return false
	}
	status := g.node.BasicStatus()
	if status.RaftState != raft.StateLeader || status.GetTerm() != g.term || status.LeadTransferee != raft.None {
		return false
	}
	ok := true
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.replica || !c.heard(g, id) {
			return
		}
		if pr.State != tracker.StateReplicate || pr.Match != last && planted != 20 || !pr.RecentActive {
			ok = false
		}
	})
	return ok
}

// agrees says whether a follower may sleep because its leader says that it
// does: both are at the same place, and the leader's node is heard, so that its
// silence would be noticed.
func (c *Core) agrees(g *group, m *pb.Message) bool {
	if m.GetTerm() != g.term || m.GetTerm() != g.hard.term || m.GetFrom() != g.lead || g.leader || g.place == 0 && !g.asleep {
		return false
	}
	if !c.heard(g, g.lead) {
		return false
	}
	if planted == 20 { // nor does the follower compare
		return !g.held && !g.joint()
	}
	commit := m.GetCommit()
	return g.hard.commit == commit && g.log.last() == commit && g.applied == commit &&
		!g.held && !g.rewrite && !g.confUnwritten && !g.joint() && !g.node.HasReady()
}

// told follows what another replica said of sleeping; it says whether the
// message is of no more concern to raft.
func (c *Core) told(g *group, m *Message) bool {
	from, term := m.Raft.GetFrom(), m.Raft.GetTerm()
	switch m.note {
	case noteSleep:
		if c.agrees(g, m.Raft) {
			if !g.asleep {
				c.sleep(g)
			}
			return true
		}
		// To raft it is a heartbeat. The leader must not sleep.
		c.wake(g)
		c.say(g, noteWake, from)
		return false
	case noteWake:
		if !g.member(from) {
			return true
		}
		c.wake(g)
		if from == g.lead && term >= g.term {
			c.forget(g) // a leader does not ask to be led
		}
		return true
	}
	return false
}

// heed wakes a sleeping group for a message. What answers a leader's last
// heartbeats may arrive after it fell asleep, and says nothing new. A replica
// that is no member wakes nobody: if raft has something to do for it, that does.
func (c *Core) heed(g *group, m *pb.Message) {
	if m.GetFrom() == g.lead {
		g.unheard = 0
	}
	if !g.asleep || m.GetType() == pb.MsgHeartbeatResp && m.GetTerm() == g.term || !g.member(m.GetFrom()) {
		return
	}
	c.wake(g)
}

// listen counts how long nothing was heard of a leader, and wakes it, or
// everybody if there is none: when it begins, and then less and less often.
func (c *Core) listen(g *group) {
	if g.leader {
		return
	}
	g.unheard++
	if g.lead != raft.None {
		if g.unheard%(3*c.opts.HeartbeatTicks) == 0 {
			c.say(g, noteWake, g.lead)
		}
		return
	}
	if n := g.unheard; n&(n-1) != 0 && n%16 != 0 {
		return
	}
	var said []uint64
	for _, list := range g.lists() {
		for _, id := range list {
			if !slices.Contains(said, id) {
				said = append(said, id)
				c.say(g, noteWake, id)
			}
		}
	}
}

// say sends a note to another replica whose node is heard.
func (c *Core) say(g *group, note byte, to uint64) {
	if to == g.replica || !c.heard(g, to) {
		return
	}
	c.outbox = append(c.outbox, Message{Shard: g.shard, to: c.locate(g, to), note: note, Raft: &pb.Message{
		Type: pb.MsgHeartbeatResp.Enum(), From: new(g.replica), To: new(to), Term: new(max(g.term, 1)),
	}})
}
