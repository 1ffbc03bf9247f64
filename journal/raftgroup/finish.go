package raftgroup

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// finishTurn ends the turn after its records are durable.
func (c *Core) finishTurn() {
	for _, g := range c.readied {
		c.finish(g)
	}
	for _, o := range c.transfers.unsent { // the nodes of their replicas are unknown
		c.reportSnapshot(o, raft.ErrSnapshotTemporarilyUnavailable)
	}
	c.transfers.unsent = slices.Delete(c.transfers.unsent, 0, len(c.transfers.unsent))
}

func (c *Core) finish(g *group) {
	if g.failed {
		return // nothing of the group's turn was written
	}
	defer c.recoverPanic(g)
	if g.steady.on {
		c.finishSteady(g)
		return
	}
	if !raft.IsEmptySnap(g.ready.Snapshot) {
		c.install(g)
	}
	wasSteady := g.steady.left || len(g.ready.Entries) > 0
	g.log.Append(g.ready.Entries)
	c.complete(g, &g.ready)
	g.ready = raft.Ready{}
	more := g.raw.HasReady()
	if more && g.leader && !g.isJoint() {
		// The entries that the leader just stored may complete a quorum, and
		// always do so if the leader is the only voter. Committing these
		// entries needs no further sync.
		second := g.raw.Ready()
		if second.MustSync {
			g.ready, g.readyWaits = second, true
			c.markDirty(g)
			return
		}
		g.setHardState(second.HardState)
		for _, m := range second.Messages {
			if m.GetType() == pb.MsgSnap {
				c.turn.Snapshots = c.transfers.ship(c.turn.Snapshots, g, m)
			} else if wire.IsCarried(m.GetType()) {
				c.turn.Late = c.mail.post(c.turn.Late, g, m)
			}
		}
		c.complete(g, &second)
		more = g.raw.HasReady()
	}
	if g.confUnwritten || g.campaign && !g.leader && !c.awaitingRelease && !c.opts.isHeld(g.shard) || more {
		c.markDirty(g)
	} else if wasSteady {
		c.enterSteady(g)
	}
}

// complete acts on a raft.Ready after it is durable, and advances raft.
func (c *Core) complete(g *group, rd *raft.Ready) {
	c.observe(g, rd.SoftState)
	c.commit(g, rd.CommittedEntries)
	for _, s := range rd.ReadStates {
		for _, token := range g.reads.Confirm(binary.LittleEndian.Uint64(s.RequestCtx)) {
			c.turn.Reads = append(c.turn.Reads, readResult{Shard: g.shard, Token: token, Index: s.Index})
		}
		if g.reads.HasWaiting() {
			c.markDirty(g)
		}
	}
	g.raw.Advance(*rd)
}

// observe reports a change of term or leadership.
func (c *Core) observe(g *group, s *raft.SoftState) {
	lead, leader := g.lead, g.leader
	if s != nil {
		lead, leader = s.Lead, s.RaftState == raft.StateLeader
	}
	if g.stopped != sharding.NotStopped && (leader || lead == g.replica) {
		lead, leader = raft.None, false
	}
	if g.hard.Term == g.term && lead == g.lead && leader == g.leader {
		return
	}
	if g.leader && (!leader || g.hard.Term != g.term) {
		c.turn.Reads = g.failReads(c.turn.Reads)
	}
	if leader != g.leader || g.hard.Term != g.term {
		g.readable = false
	}
	switch {
	case leader && !g.leader:
		c.stats.Elections++
		c.leading++
	case !leader && g.leader:
		c.leading--
	}
	g.term, g.lead, g.leader = g.hard.Term, lead, leader
	g.unheard = 0
	g.campaign = g.isSoleVoter() && !leader && g.stopped == sharding.NotStopped
	c.turn.Leaders = append(c.turn.Leaders, leaderChange{g.shard, sharding.Term(g.term), sharding.ReplicaID(lead), leader})
}

// commit passes committed entries to the state machine and applies membership
// changes.
func (c *Core) commit(g *group, ents []*pb.Entry) {
	if len(ents) == 0 {
		return
	}
	out := make([]journal.Committed, len(ents))
	for i, e := range ents {
		out[i] = journal.Committed{Index: e.GetIndex(), Term: sharding.Term(e.GetTerm()), Data: e.GetData()}
		if e.GetType() != pb.EntryNormal {
			out[i].Data = nil
			c.changeMembers(g, e)
		}
	}
	last := ents[len(ents)-1]
	g.applied = last.GetIndex()
	g.truncatable, c.retention.pending = true, true
	if g.leader && last.GetTerm() == g.term && !g.readable {
		g.readable = true
		if g.reads.HasWaiting() {
			c.markDirty(g)
		}
	}
	c.turn.Applied = append(c.turn.Applied, batch{g.shard, out})
}

// changeMembers applies a committed membership change, unless the log already
// records its result, because raft was then started with that result.
func (c *Core) changeMembers(g *group, e *pb.Entry) {
	if e.GetIndex() <= g.conf.Index {
		return
	}
	change, err := wire.CheckChange(e.GetData())
	if err != nil {
		panic(fmt.Sprintf("raftgroup: shard %d: membership change at index %d: %v", g.shard, e.GetIndex(), err))
	}
	if note := change.GetContext(); len(note) > 0 {
		c.opts.Logger.Warn("an operator replaced the members of a shard", "shard_id", uint32(g.shard), "index", e.GetIndex(), "note", string(note[:min(len(note), wire.MaxNote)]))
	}
	g.conf, g.confUnwritten = wire.Membership{Index: e.GetIndex(), State: g.raw.ApplyConfChange(change)}, true
	c.mail.flush(g) // members that do not learn of this commit act on the previous membership
	g.routes.Retain(g.isMember)
	c.updateClock(g)
	c.updateQuorum(g)
	prune(c.nodes, c.order)
}
