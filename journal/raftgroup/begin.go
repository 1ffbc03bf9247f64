package raftgroup

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Begin starts a turn with all groups that something happened to.
func (c *Core) Begin() *Turn {
	clear(c.taken)
	clear(c.sections)
	c.taken, c.sections, c.next, c.record = c.taken[:0], c.sections[:0], 0, nil
	c.turn.reset()
	c.stats.Turns++
	clear(c.installs)
	c.installs, c.installed = c.installs[:0], 0
	dirty := c.dirty
	c.dirty = c.spare[:0]
	for _, g := range dirty {
		g.dirty = false
		if !g.removed {
			c.begin(g)
		}
	}
	c.spare = dirty[:0]
	c.turn.Late = append(c.turn.Late, c.outbox...)
	clear(c.outbox)
	c.outbox = c.outbox[:0]
	return &c.turn
}

func (t *Turn) reset() {
	clear(t.Early)
	clear(t.Late)
	clear(t.Applied)
	clear(t.Dropped)
	clear(t.Reads)
	clear(t.Installs)
	clear(t.Snapshots)
	*t = Turn{Early: t.Early[:0], Late: t.Late[:0], Leaders: t.Leaders[:0], Quorums: t.Quorums[:0], Applied: t.Applied[:0], Dropped: t.Dropped[:0], Reads: t.Reads[:0],
		Installs: t.Installs[:0], Snapshots: t.Snapshots[:0]}
}

func (c *Core) begin(g *group) {
	if !g.told || g.toldQuorum != g.quorum {
		g.told, g.toldQuorum = true, g.quorum
		c.turn.Quorums = append(c.turn.Quorums, QuorumChange{g.shard, g.quorum})
	}
	if g.held {
		// What came meanwhile waits for the next turn.
		c.touch(g)
	} else {
		if g.campaign && g.node.BasicStatus().RaftState == raft.StateFollower {
			_ = g.node.Campaign()
		}
		c.flushProposals(g)
		c.flushReads(g)
	}
	if g.rewrite {
		g.rewrite = false // one section, and so one record: written in parts, the first would cut the rest off
		c.sections = append(c.sections, pending{g, section{shard: uint32(g.shard), replica: g.replica, first: g.log.cut + 1, ents: g.log.ents}})
	}
	held := g.held
	has := held || g.node.HasReady()
	if has {
		if !held {
			g.ready = g.node.Ready()
		}
		g.held = false
		if g.asleep || g.ready.SoftState != nil || len(g.ready.Entries)+len(g.ready.CommittedEntries) > 0 {
			c.wake(g)
		}
		c.take(g)
	}
	if in := g.incoming; in != nil && in.stepped && !held && c.adopt(g, has) {
		return
	}
	if has && g.ready.MustSync || g.confUnwritten {
		// Who has left is forgotten by what this replica says: it must not say
		// anything else after a power cut.
		c.turn.MustSync = c.turn.MustSync || g.confUnwritten
		c.sections = append(c.sections, pending{g, g.section(has)})
	}
}

// take looks at a ready before it is written.
func (c *Core) take(g *group) {
	rd := &g.ready
	c.taken = append(c.taken, g)
	c.turn.MustSync = c.turn.MustSync || rd.MustSync
	promised := g.note(rd.HardState)
	for _, m := range rd.Messages {
		if m.GetType() == pb.MsgSnap {
			c.ship(g, m)
			continue
		}
		if !isCarried(m.GetType()) {
			continue
		}
		// A leader may ask others to store what it has not stored yet itself, but
		// not under a membership that it could forget: who is no voter in it would
		// have more than the leader has, and the leader need its vote again.
		// Everything else speaks of what this replica has on disk.
		early := !promised && !g.confUnwritten && (m.GetType() == pb.MsgApp || m.GetType() == pb.MsgHeartbeat)
		if early || planted == 15 { // votes and append responses leave before the sync
			c.turn.Early = c.post(c.turn.Early, g, m)
		} else {
			c.turn.Late = c.post(c.turn.Late, g, m)
		}
	}
}

// post adds a message for the node of its replica, or drops it if nobody knows
// that.
func (c *Core) post(box []Message, g *group, m *pb.Message) []Message {
	if g.park(m) {
		return box
	}
	p := c.locate(g, m.GetTo())
	if p == nil {
		c.stats.MessagesUnlocated++
		return box
	}
	c.stats.MessagesSent++
	return append(box, Message{Shard: g.shard, Raft: m, to: p})
}

// section is what has to be written of the group.
func (g *group) section(has bool) section {
	s := section{shard: uint32(g.shard), replica: g.replica}
	if g.hardUnwritten {
		g.hardOut = g.hard
		s.hard = &g.hardOut
	}
	if g.confUnwritten {
		m := g.conf
		s.conf = &m
	}
	if has && len(g.ready.Entries) > 0 {
		s.first, s.ents = g.ready.Entries[0].GetIndex(), g.ready.Entries
	}
	return s
}

// msgProp is pointed to by messages; it is never written.
var msgProp = pb.MsgProp

// flushProposals gives raft what may be proposed and reports the rest. An
// entry enters a log only under the term it was made for: raft refuses it if
// this leadership, the one last reported, is over, and a later one begins only
// with a vote that is written first.
func (c *Core) flushProposals(g *group) {
	if len(g.proposals) == 0 || g.hands() {
		return
	}
	all := g.proposals
	for len(all) > 0 {
		var bytes uint64
		ents := make([]*pb.Entry, 0, len(all))
		n := 0
		for ; n < len(all) && (n == 0 || bytes < c.opts.MaxMessageBytes); n++ {
			if p := &all[n]; g.leader && fenceHolds(p.fence, g.term) {
				ents = append(ents, p.entry)
				bytes += uint64(len(p.entry.Data))
			}
		}
		var err error
		if len(ents) > 0 {
			err = g.node.Step(&pb.Message{Type: &msgProp, From: &g.replica, Entries: ents})
		}
		if err != nil || len(ents) < n {
			c.drop(g, all[:n], err)
		}
		if err == nil {
			c.stats.Proposals += uint64(len(ents))
			g.fresh += len(ents)
		}
		all = all[n:]
	}
	clear(g.proposals)
	g.proposals = g.proposals[:0]
}

// hands reports that this replica, the leader, is handing over. Raft would drop
// what is proposed meanwhile, one after the other, while what was proposed
// before is of unknown outcome: so it waits until it is seen who leads, or until
// raft has given the attempt up after an election timeout.
func (g *group) hands() bool {
	if g.handing {
		s := g.node.BasicStatus()
		g.handing = g.leader && s.RaftState == raft.StateLeader && s.LeadTransferee != raft.None
	}
	return g.handing
}

// drop reports those proposals that did not enter raft's log.
func (c *Core) drop(g *group, proposals []proposal, err error) {
	for i := range proposals {
		p := &proposals[i]
		reason := err
		switch {
		case !g.leader, g.node.BasicStatus().RaftState != raft.StateLeader:
			reason = ErrNotLeader
		case !fenceHolds(p.fence, g.term):
			reason = ErrFenced
		case err == nil:
			continue
		case err == raft.ErrProposalDropped:
			reason = ErrDropped
		}
		c.stats.ProposalsDropped++
		c.turn.Dropped = append(c.turn.Dropped, Dropped{g.shard, p.fence, p.number, reason})
	}
}

// flushReads starts a round for the reads that wait.
func (c *Core) flushReads(g *group) {
	if len(g.reads) == 0 {
		return
	}
	if !g.leader {
		c.failReads(g)
		return
	}
	if planted == 3 || g.unasked { // reads are answered without asking the others
		for _, token := range g.reads {
			c.turn.Reads = append(c.turn.Reads, ReadResult{Shard: g.shard, Token: token, Index: g.applied})
		}
		g.reads, g.unasked = nil, false
		return
	}
	if !g.readable || len(g.rounds) >= maxRounds {
		return
	}
	c.context++
	g.rounds = append(g.rounds, round{c.context, g.reads})
	g.waiting += len(g.reads)
	g.reads = nil
	g.node.ReadIndex(binary.LittleEndian.AppendUint64(nil, c.context))
}

func (c *Core) failReads(g *group) {
	for _, token := range g.takeReads() {
		c.turn.Reads = append(c.turn.Reads, ReadResult{Shard: g.shard, Token: token, Err: ErrNotLeader})
	}
}

// takeReads returns all reads that are not confirmed, for good.
func (g *group) takeReads() (tokens []uint64) {
	for _, r := range g.rounds {
		tokens = append(tokens, r.tokens...)
	}
	tokens = append(tokens, g.reads...)
	g.rounds, g.reads, g.waiting = nil, nil, 0
	return tokens
}

// Abandon returns what will not be done any more when no further turn comes:
// proposals that did not reach raft, and reads without a confirmation.
func (c *Core) Abandon() (dropped []Dropped, reads []ReadResult) {
	for _, g := range c.order {
		for _, p := range g.proposals {
			dropped = append(dropped, Dropped{g.shard, p.fence, p.number, ErrStopped})
		}
		g.proposals = nil
		for _, token := range g.takeReads() {
			reads = append(reads, ReadResult{Shard: g.shard, Token: token, Err: ErrStopped})
		}
	}
	return dropped, reads
}
