package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A group with nothing to do sleeps: its clock stands still on every replica,
// and it costs nothing until it is woken.
//
//	        leader: may sleep, see maySleep     follower: the leader says sleep,
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
	place         int // in clocks.ticking, from 1; 0 means not there
}

// clocks are those of the groups that are awake and not alone.
type clocks struct {
	ticking []*group
	stats   *Counters
}

// start lets the clock of a group go, stop lets it stand still.
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

// each gives all groups whose clocks go to tick, which may stop the clock of its
// group.
func (k *clocks) each(tick func(*group)) {
	for i := 0; i < len(k.ticking); {
		g := k.ticking[i]
		tick(g)
		if i < len(k.ticking) && k.ticking[i] == g {
			i++ // otherwise another took its place
		}
	}
}

// wake lets the clock go on, or the time until the group may sleep begin anew.
func (k *clocks) wake(g *group) {
	g.idle = 0
	if g.asleep {
		g.asleep, g.unheard = false, 0
		k.stats.Wakes++
		k.start(g)
	}
}

// sleep lets the clock stand still.
func (k *clocks) sleep(g *group) {
	if g.asleep || g.lead == raft.None || g.place == 0 || g.readyWaits || g.joint() {
		panic("raftgroup: a group that must not sleep")
	}
	g.asleep = true
	k.stats.Sleeps++
	k.stop(g)
}

// fallAsleep lets a leader sleep if it may, and says so to the others.
func (c *Core) fallAsleep(g *group) bool {
	if g.idle < c.opts.QuiesceTicks || !g.maySleep() {
		return false
	}
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
		c.mail.sleeps(g, id)
	})
	c.clocks.sleep(g)
	return true
}

// maySleep says whether a leader may sleep: nothing waits here or in raft, the
// whole log is committed and applied, and each member that is heard holds it
// and answers. A member on a silent node is not waited for.
func (g *group) maySleep() bool {
	last := g.log.Last()
	if !g.leader || !g.readable || !g.quorum || g.unlocated || g.readyWaits || g.rewrite || g.confUnwritten || g.joint() ||
		len(g.proposals)+g.reads.Len() > 0 || g.hard.Commit != last || g.applied != last || g.node.HasReady() {
		return false
	}
	status := g.node.BasicStatus()
	if status.RaftState != raft.StateLeader || status.GetTerm() != g.term || status.LeadTransferee != raft.None {
		return false
	}
	ok := true
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.replica || !g.routes.Heard(id) {
			return
		}
		if pr.State != tracker.StateReplicate || pr.Match != last || !pr.RecentActive {
			ok = false
		}
	})
	return ok
}

// agrees says whether a follower may sleep because its leader says that it
// does: both are at the same place, and the leader's node is heard, so that its
// silence would be noticed.
func (g *group) agrees(m *pb.Message) bool {
	if m.GetTerm() != g.term || m.GetTerm() != g.hard.Term || m.GetFrom() != g.lead || g.leader || g.place == 0 && !g.asleep {
		return false
	}
	if !g.routes.Heard(g.lead) {
		return false
	}
	commit := m.GetCommit()
	return g.hard.Commit == commit && g.log.Last() == commit && g.applied == commit &&
		!g.readyWaits && !g.rewrite && !g.confUnwritten && !g.joint() && !g.node.HasReady()
}

// told follows what another replica said of sleeping; it says whether the
// message is of no more concern to raft.
func (c *Core) told(g *group, m *wire.Message) bool {
	from, term := m.Raft.GetFrom(), m.Raft.GetTerm()
	switch m.Note {
	case wire.NoteSleep:
		if g.agrees(m.Raft) {
			if !g.asleep {
				c.clocks.sleep(g)
			}
			return true
		}
		// To raft it is a heartbeat. The leader must not sleep.
		c.clocks.wake(g)
		c.mail.say(g, wire.NoteWake, from)
		return false
	case wire.NoteWake:
		if !g.member(from) {
			return true
		}
		c.clocks.wake(g)
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
func (k *clocks) heed(g *group, m *pb.Message) {
	if m.GetFrom() == g.lead {
		g.unheard = 0
	}
	if !g.asleep || m.GetType() == pb.MsgHeartbeatResp && m.GetTerm() == g.term || !g.member(m.GetFrom()) {
		return
	}
	k.wake(g)
}

// listen counts how long nothing was heard of a leader, and wakes it, or
// everybody if there is none: when it begins, and then less and less often.
func (p *mail) listen(g *group, heartbeat int) {
	if g.leader {
		return
	}
	g.unheard++
	if g.lead != raft.None {
		if g.unheard%(3*heartbeat) == 0 {
			p.say(g, wire.NoteWake, g.lead)
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
				p.say(g, wire.NoteWake, id)
			}
		}
	}
}
