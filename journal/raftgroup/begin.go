package raftgroup

import (
	"encoding/binary"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// beginTurn starts a turn with all groups that received input.
func (c *Core) beginTurn() *turn {
	clear(c.readied)
	c.readied = c.readied[:0]
	c.records.reset()
	c.turn.reset()
	c.stats.Turns++
	dirty := c.dirty
	c.dirty = c.spare[:0]
	for _, g := range dirty {
		g.dirty = false
		if !g.removed {
			c.begin(g)
		}
	}
	c.spare = dirty[:0]
	c.turn.Late = c.mail.collect(c.turn.Late)
	return &c.turn
}

func (t *turn) reset() {
	clear(t.Early)
	clear(t.Late)
	clear(t.Applied)
	clear(t.Dropped)
	clear(t.Reads)
	clear(t.Installs)
	clear(t.Snapshots)
	*t = turn{Early: t.Early[:0], Late: t.Late[:0], Leaders: t.Leaders[:0], Quorums: t.Quorums[:0], Applied: t.Applied[:0], Dropped: t.Dropped[:0], Reads: t.Reads[:0],
		Installs: t.Installs[:0], Snapshots: t.Snapshots[:0]}
}

func (c *Core) begin(g *group) {
	defer c.recoverPanic(g)
	if g.takeQuorumReport() {
		c.turn.Quorums = append(c.turn.Quorums, quorumChange{g.shard, g.quorum})
	}
	if g.failed {
		c.beginFailed(g)
		return
	}
	if g.steady.on && c.beginSteady(g) {
		return
	}
	if g.readyWaits {
		// Input that arrived during the turn waits for the next turn.
		c.markDirty(g)
	} else {
		if g.stopped != sharding.NotStopped && (g.leader || g.lead == g.replica) {
			// A stopped leader reports that it no longer leads, even if raft has not
			// finished the transfer of its leadership.
			c.observe(g, &raft.SoftState{Lead: g.replica, RaftState: raft.StateLeader})
		}
		if g.campaign && !c.awaitingRelease && !c.opts.isHeld(g.shard) && g.raw.BasicStatus().RaftState == raft.StateFollower {
			_ = g.node().Campaign()
		}
		c.flushProposals(g)
		c.flushReads(g)
	}
	if g.rewrite {
		g.rewrite = false // in one section, and so in one record, because replaying only the first part would truncate the rest
		c.records.add(g, wire.Section{Shard: uint32(g.shard), Replica: g.replica, First: g.log.TruncatedIndex() + 1, Ents: g.log.All()})
	}
	readyWaits := g.readyWaits
	has := readyWaits || g.raw.HasReady()
	if has {
		if !readyWaits {
			g.ready = g.raw.Ready()
		}
		g.readyWaits = false
		if g.asleep || g.ready.SoftState != nil || len(g.ready.Entries)+len(g.ready.CommittedEntries) > 0 {
			c.clocks.wake(g)
		}
		c.processReady(g)
	}
	if in := g.transfer.incoming; in != nil && in.Stepped && !readyWaits && c.recordInstall(g, has) {
		return
	}
	if has && g.ready.MustSync || g.confUnwritten {
		// This replica accepts messages from, and responds to, only the members
		// in its membership. The membership must therefore be on disk before a
		// message that depends on it leaves.
		c.turn.MustSync = c.turn.MustSync || g.confUnwritten
		var ents []*pb.Entry
		if has {
			ents = g.ready.Entries
		}
		c.records.add(g, g.section(ents))
	}
}

// processReady processes a raft.Ready before it is written.
func (c *Core) processReady(g *group) {
	rd := &g.ready
	c.readied = append(c.readied, g)
	c.stats.Readies++
	c.turn.MustSync = c.turn.MustSync || rd.MustSync
	promised := g.setHardState(rd.HardState)
	for _, m := range rd.Messages {
		if m.GetType() == pb.MsgSnap {
			c.turn.Snapshots = c.transfers.ship(c.turn.Snapshots, g, m)
			continue
		}
		if !wire.IsCarried(m.GetType()) {
			continue
		}
		// A leader may send entries before it has stored them itself, but not
		// under a membership that it could lose in a crash. After the crash, a
		// replica that is no voter under the old membership could have more of
		// the log than the leader, and the leader would need the vote of that
		// replica. All other messages depend on the state that this replica has
		// on disk.
		early := !promised && !g.confUnwritten && (m.GetType() == pb.MsgApp || m.GetType() == pb.MsgHeartbeat)
		if early {
			c.turn.Early = c.mail.post(c.turn.Early, g, m)
		} else {
			c.turn.Late = c.mail.post(c.turn.Late, g, m)
		}
	}
}

// msgProp is the message type that proposals point to. It is never modified.
var msgProp = pb.MsgProp

// flushProposals steps the valid proposals into raft and reports the others as
// dropped. An entry enters the log only in the term for which it was proposed:
// raft rejects it if the last reported leadership is over, and a later
// leadership cannot begin before its vote was written.
func (c *Core) flushProposals(g *group) {
	if len(g.proposals) == 0 || g.isTransferring() {
		return
	}
	all := g.proposals
	for len(all) > 0 {
		var bytes uint64
		ents := make([]*pb.Entry, 0, len(all))
		n := 0
		for ; n < len(all) && (n == 0 || bytes < c.opts.MaxMessageBytes); n++ {
			if p := &all[n]; g.leader && isFenceValid(p.fence, g.term) {
				ents = append(ents, p.entry)
				bytes += uint64(len(p.entry.Data))
			}
		}
		var err error
		if len(ents) > 0 {
			err = g.node().Step(&pb.Message{Type: &msgProp, From: &g.replica, Entries: ents})
		}
		if err != nil || len(ents) < n {
			had := len(c.turn.Dropped)
			c.turn.Dropped = g.reportDropped(c.turn.Dropped, all[:n], err)
			c.stats.ProposalsDropped += uint64(len(c.turn.Dropped) - had)
		}
		if err == nil {
			c.stats.Proposals += uint64(len(ents))
			g.delayed.fresh += len(ents)
		}
		all = all[n:]
	}
	clear(g.proposals)
	g.proposals = g.proposals[:0]
}

// isTransferring reports whether this replica, the leader, is transferring its
// leadership. Raft would drop proposals made during the transfer, while the
// outcome of earlier proposals is still unknown. Proposals therefore wait until
// the new leader is known or raft aborts the transfer after an election
// timeout.
func (g *group) isTransferring() bool {
	if g.transferPending {
		s := g.raw.BasicStatus()
		g.transferPending = g.leader && s.RaftState == raft.StateLeader && s.LeadTransferee != raft.None
	}
	return g.transferPending
}

// reportDropped reports the proposals that did not enter raft's log.
func (g *group) reportDropped(out []droppedProposal, proposals []proposal, err error) []droppedProposal {
	for i := range proposals {
		p := &proposals[i]
		reason := err
		switch {
		case !g.leader, g.raw.BasicStatus().RaftState != raft.StateLeader:
			reason = ErrNotLeader
		case !isFenceValid(p.fence, g.term):
			reason = ErrFenced
		case err == nil:
			continue
		case err == raft.ErrProposalDropped:
			reason = ErrDropped
		}
		out = append(out, droppedProposal{g.shard, p.fence, p.number, reason})
	}
	return out
}

// flushReads starts a ReadIndex round for the waiting reads.
func (c *Core) flushReads(g *group) {
	if !g.reads.HasWaiting() {
		return
	}
	if !g.leader {
		c.turn.Reads = g.failReads(c.turn.Reads)
		return
	}
	if !g.readable || g.reads.IsFull() {
		return
	}
	c.context++
	g.reads.StartRound(c.context)
	g.node().ReadIndex(binary.LittleEndian.AppendUint64(nil, c.context))
}

func (g *group) failReads(out []readResult) []readResult {
	for _, token := range g.reads.TakeAll() {
		out = append(out, readResult{Shard: g.shard, Token: token, Err: ErrNotLeader})
	}
	return out
}

// abandon returns the requests that no further turn will process: proposals
// that did not reach raft, and unconfirmed reads.
func (c *Core) abandon() (dropped []droppedProposal, reads []readResult) {
	for _, g := range c.order {
		for _, p := range g.proposals {
			dropped = append(dropped, droppedProposal{g.shard, p.fence, p.number, ErrStopped})
		}
		g.proposals = nil
		for _, token := range g.reads.TakeAll() {
			reads = append(reads, readResult{Shard: g.shard, Token: token, Err: ErrStopped})
		}
	}
	return dropped, reads
}
