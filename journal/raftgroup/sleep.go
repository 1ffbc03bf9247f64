package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A group with nothing to do sleeps: its clock stops on every replica, and it
// costs nothing until it wakes.
//
//	        leader: may sleep, see canSleep     follower: the leader sends a sleep
//	        and sends a sleep note              note, see canFollowToSleep
//	awake ─────────────────────────────────────────────────────────────▶ asleep
//	  ▲                                                                     │
//	  └─── a proposal, a read, a transfer, a membership change; a message ──┘
//	       from a member; anything raft wants done; the node of another
//	       member suspected or alive again (leader), the leader's node
//	       suspected (follower)
//
// A replica without a leader never sleeps, nor does a replica whose leader is
// on a suspected node, nor a replica in a joint membership. Other transitions
// panic.
//
// Safety is not affected: a stopped clock is a slow clock, and raft's safety
// does not depend on clocks. Votes, commits and read confirmations follow their
// usual path, which begins with waking; there is no lease.
//
// Liveness: a group with work to do does not sleep forever.
//
//   - Work begins with an input to a replica, which wakes it. A leader that is
//     awake sends heartbeats, which wake the other members.
//   - A follower sleeps only because its leader sent a sleep note in its term,
//     and the leader's node is alive. While that leader stays leader, waking it
//     is enough. It stops being leader only by a message of a later term, which
//     came from a member that is awake, by losing its quorum, or by a restart.
//     After a message of a later term, the next leader sends heartbeats to
//     every member, and sleeps only if the follower agrees, or if the follower
//     is suspected and so will be seen alive again. After a lost quorum or a
//     restart, the former leader is awake and has no leader: it asks all
//     members for votes or wakes them, and either way its followers conclude
//     that it no longer leads. If it cannot reach them, its node becomes
//     suspected and the followers forget it.
//   - A leader sleeps only while all members that it sees alive hold its whole
//     log and know that it is committed, or were sent the sleep note and object
//     if they disagree. A member that missed entries is on a node that was
//     suspected; once that node is alive again, the leader wakes and sends the
//     entries. A member that forgot something, as after a restart, has no
//     leader and wakes the other members.
//   - Messages get lost. A follower that is awake and hears nothing from its
//     leader wakes it repeatedly, and a leaderless replica wakes all members on
//     alive nodes.
type sleeping struct {
	asleep bool
	// idle counts the ticks with no work except heartbeats. unheard counts the
	// ticks without a message from the leader.
	idle, unheard int
	place         int // index in clocks.ticking plus 1; 0 if absent
}

// clocks holds the groups that are awake and have other members.
type clocks struct {
	ticking []*group
	stats   *Counters
}

// start starts the clock of a group; stop stops it.
func (k *clocks) start(g *group) {
	if g.place == 0 {
		k.ticking = append(k.ticking, g)
		g.place = len(k.ticking)
	}
}

func (k *clocks) stop(g *group) {
	if g.place == 0 {
		return
	}
	last := len(k.ticking) - 1
	moved := k.ticking[last]
	k.ticking[g.place-1], moved.place = moved, g.place
	k.ticking[last] = nil
	k.ticking = k.ticking[:last]
	g.place = 0
}

// each calls tick for all groups whose clock runs. tick may stop its group's
// clock.
func (k *clocks) each(tick func(*group)) {
	for i := 0; i < len(k.ticking); {
		g := k.ticking[i]
		tick(g)
		if i < len(k.ticking) && k.ticking[i] == g {
			i++ // otherwise the last group has moved to this place
		}
	}
}

// wake restarts the clock of a sleeping group, or the time until an awake group
// may sleep.
func (k *clocks) wake(g *group) {
	g.idle = 0
	if g.asleep {
		g.asleep, g.unheard = false, 0
		k.stats.Wakes++
		k.start(g)
	}
}

// sleep stops the clock of a group.
func (k *clocks) sleep(g *group) {
	if g.asleep || g.lead == raft.None || g.place == 0 || g.readyWaits || g.isJoint() {
		panic("raftgroup: an active group hibernated")
	}
	g.asleep = true
	k.stats.Sleeps++
	k.stop(g)
}

// fallAsleep puts a leader to sleep if it may, and notifies the other members.
func (c *Core) fallAsleep(g *group) bool {
	if g.idle < c.opts.QuiesceTicks || !g.canSleep() {
		return false
	}
	g.node().WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
		c.mail.sendSleep(g, id)
	})
	c.clocks.sleep(g)
	return true
}

// canSleep reports whether a leader may sleep: no work waits in the group or in
// raft, the whole log is committed and applied, and each member on an alive
// node has the whole log and responds. The leader does not wait for members on
// suspected nodes.
func (g *group) canSleep() bool {
	last := g.log.Last()
	if !g.leader || !g.readable || !g.quorum || g.unlocated || g.readyWaits || g.rewrite || g.confUnwritten || g.isJoint() ||
		len(g.proposals)+g.reads.Len() > 0 || g.hard.Commit != last || g.applied != last || g.node().HasReady() {
		return false
	}
	status := g.raw.BasicStatus()
	if status.RaftState != raft.StateLeader || status.GetTerm() != g.term || status.LeadTransferee != raft.None {
		return false
	}
	ok := true
	g.node().WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.replica || !g.routes.IsAlive(id) {
			return
		}
		if pr.State != tracker.StateReplicate || pr.Match != last || !pr.RecentActive {
			ok = false
		}
	})
	return ok
}

// canFollowToSleep reports whether a follower may go to sleep with its leader: both logs
// are at the same point, and the leader's node is alive, so that its failure
// would be noticed.
func (g *group) canFollowToSleep(m *pb.Message) bool {
	if m.GetTerm() != g.term || m.GetTerm() != g.hard.Term || m.GetFrom() != g.lead || g.leader || g.place == 0 && !g.asleep {
		return false
	}
	if !g.routes.IsAlive(g.lead) {
		return false
	}
	commit := m.GetCommit()
	return g.hard.Commit == commit && g.log.Last() == commit && g.applied == commit &&
		!g.readyWaits && !g.rewrite && !g.confUnwritten && !g.isJoint() && !g.node().HasReady()
}

// handleNote handles another replica's sleep or wake note. It reports whether raft
// need not see the message.
func (c *Core) handleNote(g *group, m *wire.Message) bool {
	from, term := m.Raft.GetFrom(), m.Raft.GetTerm()
	switch m.Note {
	case wire.NoteSleep:
		if g.canFollowToSleep(m.Raft) {
			if !g.asleep {
				c.clocks.sleep(g)
			}
			return true
		}
		// To raft the note is a heartbeat. The leader must stay awake.
		c.clocks.wake(g)
		c.mail.sendNote(g, wire.NoteWake, from)
		return false
	case wire.NoteWake:
		if !g.isMember(from) {
			return true
		}
		c.clocks.wake(g)
		if from == g.lead && term >= g.term {
			c.forgetLeader(g) // a replica that sends a wake note does not lead
		}
		return true
	}
	return false
}

// wakeForMessage wakes a sleeping group for a message, with two exceptions. Responses
// to the leader's last heartbeats may arrive after it fell asleep; they contain
// nothing new and do not wake it. A message from a replica that is not a member
// does not wake the group itself, although raft wakes it if raft has to act on
// the message.
func (k *clocks) wakeForMessage(g *group, m *pb.Message) {
	if m.GetFrom() == g.lead {
		g.unheard = 0
	}
	if !g.asleep || m.GetType() == pb.MsgHeartbeatResp && m.GetTerm() == g.term || !g.isMember(m.GetFrom()) {
		return
	}
	k.wake(g)
}

// pokeLeader counts the ticks without a message from the leader, and wakes the
// leader, or all members if no leader is known: at first often, then at growing
// intervals.
func (p *mail) pokeLeader(g *group, heartbeat int) {
	if g.leader {
		return
	}
	g.unheard++
	if g.lead != raft.None {
		if g.unheard%(3*heartbeat) == 0 {
			p.sendNote(g, wire.NoteWake, g.lead)
		}
		return
	}
	if n := g.unheard; n&(n-1) != 0 && n%16 != 0 {
		return
	}
	var said []uint64
	for _, list := range g.memberLists() {
		for _, id := range list {
			if !slices.Contains(said, id) {
				said = append(said, id)
				p.sendNote(g, wire.NoteWake, id)
			}
		}
	}
}
