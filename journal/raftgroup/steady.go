package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// steady is the state of a group whose log only grows: one leader in one term,
// and every member accepts the entries as they come.
//
// Problem: raft makes some thirty allocations for an entry on three nodes, and
// a node with hundreds of groups has one entry per group and turn. Approach: in
// the steady state, the group itself does what raft would do, with the same
// messages and the same records. Raft learns about it later, all at once:
//
//	                  an entry was written, raft has nothing to do,
//	                  all members take appends without gaps
//	raft's turns  ─────────────────────────────────────────────────▶  steady
//	     ▲                                                               │
//	     └──────────── node(): any other input to raft, ─────────────────┘
//	                   or a tick without progress
//
// A steady leader appends proposals of its term, counts acknowledgments, and
// commits what a majority of the voters has. A steady follower appends entries
// of its term that its leader sent and that continue its log without a gap.
// Everything else goes to raft: a different term, a vote, a membership change,
// a rejection, a snapshot, a transfer, a read, a heartbeat.
//
// Invariants: raft is never called without node(), which first brings it up to
// date, so raft decides with the whole log. Until then shown hides the entries
// that raft does not know. An acknowledgment leaves after the sync that covers
// its entries, as in other turns. Once raft is up to date, it must have the
// same commit index as the group; otherwise the group fails.
//
// A tick with progress is not passed to raft, which would only send heartbeats
// to members that were sent entries. The clock is then slow, which does not
// affect safety. The number of such ticks in succession is bounded.
//
// Rejected: a raft of our own, which would have to prove all of raft again, and
// storage writes as messages (raft's AsyncStorageWrites), which allocate more.
type steady struct {
	on bool
	// left means that the group was steady and may be again after its next turn.
	left  bool
	base  uint64       // the last entry that raft knows
	peers []steadyPeer // the other members, if this replica leads
	// inputs are the appends or acknowledgments since the last turn.
	inputs  []*pb.Message
	writing []*pb.Entry // entries of this turn
	// active means that the group participates in the turn.
	active bool
	heard  bool // if this replica follows: raft does not know of the last append
	// progress means that entries were committed or appended since the last tick.
	progress bool
	skipped  int // ticks in succession that raft did not see
	matches  []uint64
}

// steadyPeer is a member as its leader sees it.
type steadyPeer struct {
	id    uint64
	voter bool
	match uint64 // the member has the entries up to this index
	bytes uint64 // size of the entries after match
	told  uint64 // the commit index that was last sent to the member
	heard bool   // raft does not know of its last acknowledgment
}

const (
	// maxSkippedTicks bounds the ticks in succession that raft does not see.
	maxSkippedTicks = 8
	// maxUnseen bounds the entries that raft does not know, and so the time it
	// takes to bring raft up to date.
	maxUnseen = 1024
)

// msgApp and msgAppResp are shared by messages, like msgProp.
var msgApp, msgAppResp = pb.MsgApp, pb.MsgAppResp

// shown is the log as raft knows it: without the entries at its end that the
// group appended in the steady state.
type shown struct {
	*raftlog.Log
	unseen uint64
}

// LastIndex returns the index of the last entry that raft knows.
func (s *shown) LastIndex() (uint64, error) { return s.Last() - s.unseen, nil }

// node brings the group's raft up to date and returns it. It ends the steady
// state.
func (g *group) node() *raft.RawNode {
	if g.steady.on {
		g.leaveSteady()
	}
	return g.raw
}

// memberProgress is a member's progress, as far as its leader knows.
type memberProgress struct {
	id, match uint64
	active    bool // it responded since the last quorum check
}

// progress returns the progress of all members, or nil if this replica does not
// lead. It does not end the steady state.
func (g *group) progress() (out []memberProgress) {
	if g.raw.BasicStatus().RaftState != raft.StateLeader {
		return nil
	}
	g.raw.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		m := memberProgress{id, p.Match, p.RecentActive}
		if g.steady.on {
			if id == g.replica {
				m.match = g.log.Last()
			} else if s := g.steady.peer(id); s != nil {
				m.match, m.active = s.match, m.active || s.heard
			}
		}
		out = append(out, m)
	})
	return out
}

// commitIndex returns the higher of raft's and the group's commit index. Either
// index may be ahead of the other.
func (g *group) commitIndex(raft *raft.BasicStatus) uint64 {
	if g.steady.on {
		return g.hard.Commit
	}
	return raft.GetCommit()
}

// enterSteady puts a group into the steady state if all conditions hold.
func (c *Core) enterSteady(g *group) {
	s := &g.steady
	s.left = false
	last := g.log.Last()
	if c.opts.WithoutSteady || g.removed || g.failed || g.stopped != sharding.NotStopped || c.awaitingRelease || c.opts.isHeld(g.shard) || g.asleep ||
		g.readyWaits || g.rewrite || g.confUnwritten || g.campaign || g.isJoint() || g.transfer.incoming != nil || g.isTransferring() ||
		g.term != g.hard.Term || g.applied != g.hard.Commit {
		return
	}
	status := g.raw.BasicStatus()
	if term, err := g.log.Term(last); err != nil || term != g.term || status.GetTerm() != g.term || status.GetCommit() != g.hard.Commit || status.Applied != g.applied ||
		status.LeadTransferee != raft.None || g.lead == raft.None || status.Lead != g.lead {
		return
	}
	unapplied, err := g.tail(g.applied)
	if err != nil || slices.ContainsFunc(unapplied, func(e *pb.Entry) bool { return e.GetType() != pb.EntryNormal }) {
		return
	}
	peers := s.peers[:0]
	switch {
	case g.leader && status.RaftState == raft.StateLeader && g.readable:
		ok, self := true, false
		g.raw.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
			if id == g.replica {
				self = kind == raft.ProgressTypePeer && p.Match == last
				return
			}
			ok = ok && p.State == tracker.StateReplicate && p.Next == last+1 && !p.IsPaused() && p.Match >= g.log.TruncatedIndex()
			peers = append(peers, steadyPeer{id: id, voter: kind == raft.ProgressTypePeer, match: p.Match, told: g.hard.Commit})
		})
		s.peers = peers
		if !ok || !self {
			return
		}
		for i := range peers {
			ents, err := g.tail(peers[i].match)
			if err != nil {
				return
			}
			if peers[i].bytes = entryBytes(ents); peers[i].bytes > c.opts.maxUnacknowledged()/2 {
				return
			}
		}
	case !g.leader && status.RaftState == raft.StateFollower:
		s.peers = peers
	default:
		return
	}
	s.on, s.base, s.heard, s.progress, s.skipped = true, last, false, false, 0
}

// tail returns the entries after an index.
func (g *group) tail(after uint64) ([]*pb.Entry, error) {
	last := g.log.Last()
	if after >= last {
		return nil, nil
	}
	return g.log.Entries(after+1, last+1, 1<<62)
}

// entryBytes returns the size of entries in a message.
func entryBytes(ents []*pb.Entry) (n uint64) {
	for _, e := range ents {
		n += uint64(len(e.GetData())) + wire.EntryHeadBytes
	}
	return n
}

// holdSteady keeps a message for the group's next turn if that turn will be
// steady.
func (g *group) holdSteady(m *pb.Message) bool {
	s := &g.steady
	if !s.on || m.GetTerm() != g.term {
		return false
	}
	switch m.GetType() {
	case pb.MsgAppResp:
		if !g.leader || m.GetReject() || s.peer(m.GetFrom()) == nil {
			return false
		}
	case pb.MsgApp:
		if g.leader || m.GetFrom() != g.lead || m.GetIndex() != s.end(g) || m.GetLogTerm() != g.term {
			return false
		}
		for _, e := range m.GetEntries() {
			if e.GetTerm() != g.term || e.GetType() != pb.EntryNormal {
				return false
			}
		}
	default:
		return false
	}
	s.inputs = append(s.inputs, m)
	return true
}

func (s *steady) peer(id uint64) *steadyPeer {
	for i := range s.peers {
		if s.peers[i].id == id {
			return &s.peers[i]
		}
	}
	return nil
}

// end returns the last index of a follower's log, including the appends that
// wait for the next turn.
func (s *steady) end(g *group) uint64 {
	if n := len(s.inputs); n > 0 {
		m := s.inputs[n-1]
		return m.GetIndex() + uint64(len(m.GetEntries()))
	}
	return g.log.Last()
}

// beginSteady starts a turn of a steady group. It returns false if raft must
// handle the turn.
func (c *Core) beginSteady(g *group) bool {
	s := &g.steady
	if g.stopped != sharding.NotStopped || g.rewrite || g.confUnwritten || g.campaign || g.reads.HasWaiting() || !g.leader && len(g.proposals) > 0 ||
		g.leader && !c.hasRoom(g) || g.log.Last()-s.base >= maxUnseen {
		g.node()
		return false
	}
	if len(s.inputs)+len(g.proposals) == 0 {
		return true
	}
	c.readied = append(c.readied, g)
	c.stats.Steady++
	s.active = true
	commit := g.hard.Commit
	if g.leader {
		c.beginSteadyLeader(g)
	} else {
		c.beginSteadyFollower(g)
	}
	clear(s.inputs)
	s.inputs = s.inputs[:0]
	if len(s.writing) > 0 || g.hard.Commit > commit {
		c.clocks.wake(g)
	}
	if len(s.writing) > 0 {
		c.turn.MustSync = true
		c.records.add(g, g.section(s.writing))
	}
	return true
}

// hasRoom reports whether a steady leader may append all its proposals: the
// proposals are of the leader's term and fit into one message, and no member
// falls too far behind.
func (c *Core) hasRoom(g *group) bool {
	if len(g.proposals) == 0 {
		return true
	}
	var bytes uint64
	for i := range g.proposals {
		p := &g.proposals[i]
		if !isFenceValid(p.fence, g.term) {
			return false
		}
		bytes += uint64(len(p.entry.GetData())) + wire.EntryHeadBytes
	}
	if bytes > c.opts.MaxMessageBytes && len(g.proposals) > 1 {
		return false
	}
	return !slices.ContainsFunc(g.steady.peers, func(p steadyPeer) bool { return p.bytes+bytes > c.opts.maxUnacknowledged() })
}

// maxUnacknowledged bounds the entries that a steady leader has sent to a
// member without an acknowledgment. The leader enters the steady state again at
// half of this bound, so that it does not switch back and forth.
func (o *Options) maxUnacknowledged() uint64 { return min(o.MaxInflightBytes, o.MaxUncommittedBytes) }

// beginSteadyLeader counts acknowledgments and appends proposals.
func (c *Core) beginSteadyLeader(g *group) {
	s, last := &g.steady, g.log.Last()
	for _, m := range s.inputs {
		p := s.peer(m.GetFrom())
		p.heard = true
		if index := m.GetIndex(); index > p.match {
			ents, _ := g.log.Entries(p.match+1, index+1, 1<<62)
			p.bytes -= min(p.bytes, entryBytes(ents))
			p.match = index
		}
	}
	g.commitSteady(last)
	n := len(g.proposals)
	if n == 0 {
		c.turn.Early = c.postDue(c.turn.Early, g)
		return
	}
	numbers := make([]uint64, n+1)
	numbers[n] = g.term
	ents := make([]*pb.Entry, n)
	for i := range g.proposals {
		e := g.proposals[i].entry
		numbers[i] = last + 1 + uint64(i)
		e.Index, e.Term = &numbers[i], &numbers[n]
		ents[i] = e
	}
	bytes := entryBytes(ents)
	clear(g.proposals)
	g.proposals = g.proposals[:0]
	c.stats.Proposals += uint64(n)
	g.delayed.fresh += n
	s.writing = ents
	for i := range s.peers {
		p := &s.peers[i]
		p.bytes += bytes
		p.told = g.hard.Commit
		c.turn.Early = c.mail.post(c.turn.Early, g, g.appendFor(p.id, last, ents))
	}
}

// commitSteady commits the entries that a majority of the voters has. own is
// the last index that this replica has.
func (g *group) commitSteady(own uint64) {
	s := &g.steady
	s.matches = append(s.matches[:0], own)
	for i := range s.peers {
		if s.peers[i].voter {
			s.matches = append(s.matches, s.peers[i].match)
		}
	}
	slices.Sort(s.matches)
	if at := s.matches[(len(s.matches)-1)/2]; at > g.hard.Commit {
		g.hard.Commit, g.hardUnwritten, s.progress = at, true, true
	}
}

// postDue posts the commit index if it must not wait for the next entries.
func (c *Core) postDue(box []envelope, g *group) []envelope {
	if g.expectsEntries() {
		return box
	}
	return c.mail.postCommit(box, g)
}

// postCommit posts the commit index of a steady leader to the members to which
// it was not sent yet.
func (p *mail) postCommit(box []envelope, g *group) []envelope {
	if !g.leader {
		return box
	}
	for i := range g.steady.peers {
		if m := &g.steady.peers[i]; m.told < g.hard.Commit {
			m.told = g.hard.Commit
			box = p.post(box, g, g.appendFor(m.id, g.log.Last(), nil))
		}
	}
	return box
}

// steadyMessage is a message with the values that its fields point to, in one
// allocation.
type steadyMessage struct {
	m                                      pb.Message
	from, to, term, logTerm, index, commit uint64
}

func (g *group) message(kind *pb.MessageType, to, index uint64) *steadyMessage {
	w := &steadyMessage{from: g.replica, to: to, term: g.term, index: index}
	w.m.Type, w.m.From, w.m.To, w.m.Term, w.m.Index = kind, &w.from, &w.to, &w.term, &w.index
	return w
}

// appendFor returns an append of the entries after prev, an index of this term.
func (g *group) appendFor(to, prev uint64, ents []*pb.Entry) *pb.Message {
	w := g.message(&msgApp, to, prev)
	w.logTerm, w.commit = g.term, g.hard.Commit
	w.m.LogTerm, w.m.Commit, w.m.Entries = &w.logTerm, &w.commit, ents
	return &w.m
}

// beginSteadyFollower appends the entries that the leader sent.
func (c *Core) beginSteadyFollower(g *group) {
	s := &g.steady
	s.heard, s.progress = true, true
	commit := g.hard.Commit
	for _, m := range s.inputs {
		s.writing = append(s.writing, m.GetEntries()...)
		commit = max(commit, min(m.GetCommit(), m.GetIndex()+uint64(len(m.GetEntries()))))
	}
	if commit > g.hard.Commit {
		g.hard.Commit, g.hardUnwritten = commit, true
	}
	c.turn.Late = c.mail.post(c.turn.Late, g, &g.message(&msgAppResp, g.lead, g.log.Last()+uint64(len(s.writing))).m)
}

// finishSteady ends a turn of a steady group after its records are durable.
func (c *Core) finishSteady(g *group) {
	s := &g.steady
	g.log.Append(s.writing)
	g.shown.unseen += uint64(len(s.writing))
	s.writing, s.active = nil, false
	if g.leader {
		g.commitSteady(g.log.Last())
		c.turn.Late = c.postDue(c.turn.Late, g)
	}
	for g.applied < g.hard.Commit {
		ents, err := g.log.Entries(g.applied+1, g.hard.Commit+1, c.opts.MaxApplyBytes)
		if err != nil {
			panic(fmt.Sprintf("entries from %d to %d: %v", g.applied+1, g.hard.Commit, err))
		}
		c.commit(g, ents)
	}
}

// skipTick reports whether raft need not see a tick.
func (s *steady) skipTick(o *Options) bool {
	if !s.on || !s.progress || s.skipped >= min(maxSkippedTicks, o.ElectionTicks/2) {
		return false
	}
	s.progress = false
	s.skipped++
	return true
}

// leaveSteady brings raft up to date. The group has already done what raft then
// asks for, so raft's output is discarded, except for the messages that wait
// for the next turn.
func (g *group) leaveSteady() {
	s := &g.steady
	s.on, s.left = false, true
	if s.active {
		panic("raft was called in the steady state")
	}
	if g.leader {
		g.replayLeader()
	} else {
		g.replayFollower()
	}
	if st := g.raw.BasicStatus(); st.GetTerm() != g.term || st.GetCommit() != g.hard.Commit || st.Applied != g.applied {
		panic(fmt.Sprintf("after the steady state, raft has term %d, commit index %d and applied index %d instead of %d, %d and %d",
			st.GetTerm(), st.GetCommit(), st.Applied, g.term, g.hard.Commit, g.applied))
	}
	for i := range s.peers {
		if p := &s.peers[i]; p.told < g.hard.Commit {
			g.delayed.delay(g.appendFor(p.id, g.log.Last(), nil), true)
		}
	}
	inputs := s.inputs
	s.inputs = s.inputs[:0]
	for i, m := range inputs {
		_ = g.raw.Step(m)
		inputs[i] = nil
	}
}

// replayLeader passes the entries and the acknowledgments to raft. For
// committed entries raft needs only their number, because it reads them from
// the log.
func (g *group) replayLeader() {
	s, commit := &g.steady, g.hard.Commit
	if s.base < commit {
		ents := make([]*pb.Entry, commit-s.base)
		empty := &pb.Entry{}
		for i := range ents {
			ents[i] = empty
		}
		g.replayEntries(ents)
	}
	for i := range s.peers {
		p := &s.peers[i]
		if p.heard {
			_ = g.raw.Step(&g.answerOf(p.id, min(p.match, commit)).m)
		}
	}
	g.discardReadies()
	if ents, err := g.tail(max(s.base, commit)); err == nil && len(ents) > 0 {
		g.replayEntries(ents)
	}
	for i := range s.peers {
		p := &s.peers[i]
		if p.heard && p.match > commit {
			_ = g.raw.Step(&g.answerOf(p.id, p.match).m)
		}
		p.heard = false
	}
	g.discardReadies()
}

func (g *group) replayEntries(ents []*pb.Entry) {
	if err := g.raw.Step(&pb.Message{Type: &msgProp, From: &g.replica, Entries: ents}); err != nil {
		panic(fmt.Sprintf("entries of the steady state: %v", err))
	}
	g.discardReadies()
}

// answerOf returns an acknowledgment in the form in which a member sends it.
func (g *group) answerOf(from, index uint64) *steadyMessage {
	w := g.message(&msgAppResp, g.replica, index)
	w.from = from
	return w
}

// replayFollower passes the entries to raft as one append.
func (g *group) replayFollower() {
	s := &g.steady
	if !s.heard {
		return
	}
	s.heard = false
	ents, err := g.tail(s.base)
	if err != nil {
		panic(fmt.Sprintf("entries after %d: %v", s.base, err))
	}
	m := g.appendFor(g.replica, s.base, ents)
	m.From = &g.lead
	_ = g.raw.Step(m)
	g.discardReadies()
}

// discardReadies takes and discards raft's output, because the group has
// already done the work.
func (g *group) discardReadies() {
	for g.raw.HasReady() {
		rd := g.raw.Ready()
		if n := len(rd.Entries); n > 0 {
			g.shown.unseen = g.log.Last() - rd.Entries[n-1].GetIndex()
		}
		g.raw.Advance(rd)
	}
}
