package raftgroup

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Core is the pure part: many raft groups and what they want done. It belongs
// to one goroutine. A turn goes
//
//	inputs* ─▶ Begin ─▶ send Early ─▶ (Record ─▶ append ─▶ Appended)* ─▶ sync if MustSync ─▶ Finish ─▶ send Late, report, apply
//
// and only groups that something happened to take part in it.
type Core struct {
	opts   Options
	groups map[sharding.ShardID]*group
	// order has the groups by shard: what is written never depends on a map.
	order   []*group
	ticking []*group
	dirty   []*group
	spare   []*group // the other buffer of dirty

	// watermark is the state machine's as of the last cut written.
	watermark uint64
	context   uint64
	cutDue    bool

	turn     Turn
	taken    []*group  // groups with a ready in this turn
	sections []pending // of this turn
	next     int       // the first section that is in no record yet
	record   []pending // in the record handed out
	buf      []byte
}

// pending is a section and the group it is of.
type pending struct {
	g *group
	s section
}

// Turn is what one turn wants done. Its slices are valid until the next Begin;
// what they hold belongs to the receiver.
type Turn struct {
	// Early messages may leave before the sync.
	Early []Message
	// MustSync says that the records must be durable before Finish.
	MustSync bool
	// Leaders are reported before Applied, Dropped and Reads after it.
	Leaders []LeaderChange
	Applied []Batch
	Dropped []Dropped
	Reads   []ReadResult
	// Late messages leave after the sync.
	Late []Message
}

// LeaderChange is a call of Sink.LeaderChanged.
type LeaderChange struct {
	Shard  sharding.ShardID
	Term   sharding.Term
	Leader sharding.ReplicaID
	Self   bool
}

// Batch is a call of StateMachine.Apply.
type Batch struct {
	Shard   sharding.ShardID
	Entries []journal.Committed
}

// Dropped is a call of Sink.ProposalDropped.
type Dropped struct {
	Shard    sharding.ShardID
	Fence    sharding.Term
	Proposal uint64
	Err      error
}

// ReadResult is a call of Sink.ReadConfirmed, or of ReadFailed if Err is set.
type ReadResult struct {
	Shard sharding.ShardID
	Token uint64
	Index uint64
	Err   error
}

// NewCore starts the recovered groups. Groups whose only voter is this replica
// campaign in the first turn.
func NewCore(rec *Recovered, opts Options) (*Core, error) {
	c := &Core{opts: opts.withDefaults(), groups: map[sharding.ShardID]*group{}, watermark: rec.Watermark}
	for _, g := range rec.groups {
		applied := g.log.cut
		if opts.Applied != nil {
			applied = opts.Applied(g.shard)
		}
		if err := g.newNode(&c.opts, applied); err != nil {
			return nil, err
		}
		c.add(g)
	}
	return c, nil
}

func (c *Core) add(g *group) {
	c.groups[g.shard] = g
	i, _ := slices.BinarySearchFunc(c.order, g.shard, func(g *group, s sharding.ShardID) int { return int(int64(g.shard) - int64(s)) })
	c.order = slices.Insert(c.order, i, g)
	c.settle(g)
	c.touch(g)
}

// settle follows a change of membership: who is alone needs no ticks.
func (c *Core) settle(g *group) {
	g.campaign = g.soleVoter() && !g.leader
	i := slices.Index(c.ticking, g)
	if tick := !g.alone(); tick && i < 0 {
		c.ticking = append(c.ticking, g)
	} else if !tick && i >= 0 {
		c.ticking = slices.Delete(c.ticking, i, i+1)
	}
}

// touch makes the group take part in the next turn.
func (c *Core) touch(g *group) {
	if !g.dirty {
		g.dirty = true
		c.dirty = append(c.dirty, g)
	}
}

// Busy says whether a turn has anything to do.
func (c *Core) Busy() bool { return len(c.dirty) > 0 }

// Tick moves the clock of the groups that need one.
func (c *Core) Tick() {
	for _, g := range c.ticking {
		g.node.Tick()
		c.touch(g)
	}
}

// CreateRecord returns the payload of the log record that creates groups; the
// groups exist after Created.
func (c *Core) CreateRecord(configs []GroupConfig) ([]byte, error) {
	b := append(c.buf[:0], payloadVersion)
	b = le.AppendUint32(b, uint32(len(configs)))
	for i, config := range configs {
		if err := config.Validate(); err != nil {
			return nil, err
		}
		same := func(o GroupConfig) bool { return o.Shard == config.Shard }
		if c.groups[config.Shard] != nil || slices.ContainsFunc(configs[:i], same) {
			return nil, fmt.Errorf("create shard %d: %w", config.Shard, ErrGroupExists)
		}
		b = le.AppendUint32(b, uint32(config.Shard))
		b = le.AppendUint64(b, uint64(config.Replica))
		b = appendMembership(b, config.membership())
	}
	c.buf = b
	return b, nil
}

// Created starts the groups of a record that was synced.
func (c *Core) Created(configs []GroupConfig) error {
	for _, config := range configs {
		g := newGroup(config.Shard, uint64(config.Replica))
		g.conf, g.written.conf = config.membership(), config.membership()
		if err := g.newNode(&c.opts, 0); err != nil {
			return err
		}
		c.add(g)
	}
	return nil
}

// Step takes a message from a peer. One for a replica that is not here is
// dropped: its sender knows an earlier one of this node.
func (c *Core) Step(m Message) {
	g := c.groups[m.Shard]
	if g == nil || m.Raft.GetTo() != g.replica || !isCarried(m.Raft.GetType()) {
		return
	}
	// Errors say that the message was ignored, which is right.
	_ = g.node.Step(m.Raft)
	c.touch(g)
}

// Propose takes a proposal; what becomes of it is reported unless an error is
// returned. The data becomes raft's.
func (c *Core) Propose(shard sharding.ShardID, fence sharding.Term, number uint64, data []byte) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if len(data) > c.opts.MaxEntryBytes {
		return ErrTooLarge
	}
	g.proposals = append(g.proposals, proposal{fence, number, &pb.Entry{Data: data}})
	c.touch(g)
	return nil
}

// ReadIndex asks for a confirmation of leadership.
func (c *Core) ReadIndex(shard sharding.ShardID, token uint64) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if len(g.reads)+g.waiting >= c.opts.MaxReads {
		return ErrBusy
	}
	g.reads = append(g.reads, token)
	c.touch(g)
	return nil
}

// TransferLeader asks the leader, this replica, to hand its leadership over.
func (c *Core) TransferLeader(shard sharding.ShardID, to sharding.ReplicaID) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if !g.leader {
		return ErrNotLeader
	}
	g.node.TransferLeader(uint64(to))
	c.touch(g)
	return nil
}

// Unreachable says that messages to a replica were lost.
func (c *Core) Unreachable(shard sharding.ShardID, replica sharding.ReplicaID) {
	if g := c.groups[shard]; g != nil && g.leader {
		g.node.ReportUnreachable(uint64(replica))
		c.touch(g)
	}
}

// Begin starts a turn with all groups that something happened to.
func (c *Core) Begin() *Turn {
	clear(c.taken)
	clear(c.sections)
	c.taken, c.sections, c.next, c.record = c.taken[:0], c.sections[:0], 0, nil
	c.turn.reset()
	dirty := c.dirty
	c.dirty = c.spare[:0]
	for _, g := range dirty {
		g.dirty = false
		c.begin(g)
	}
	c.spare = dirty[:0]
	return &c.turn
}

func (t *Turn) reset() {
	clear(t.Early)
	clear(t.Late)
	clear(t.Applied)
	clear(t.Dropped)
	clear(t.Reads)
	*t = Turn{Early: t.Early[:0], Late: t.Late[:0], Leaders: t.Leaders[:0], Applied: t.Applied[:0], Dropped: t.Dropped[:0], Reads: t.Reads[:0]}
}

func (c *Core) begin(g *group) {
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
	has := g.held || g.node.HasReady()
	if has {
		if !g.held {
			g.ready = g.node.Ready()
		}
		g.held = false
		c.take(g)
	}
	if has && g.ready.MustSync || g.confUnwritten {
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
		if !isCarried(m.GetType()) {
			continue
		}
		// A leader may ask others to store what it has not stored yet itself;
		// everything else speaks of what this replica has on disk.
		early := !promised && (m.GetType() == pb.MsgApp || m.GetType() == pb.MsgHeartbeat)
		if early {
			c.turn.Early = append(c.turn.Early, Message{g.shard, m})
		} else {
			c.turn.Late = append(c.turn.Late, Message{g.shard, m})
		}
	}
}

// section is what has to be written of the group.
func (g *group) section(has bool) section {
	s := section{shard: uint32(g.shard), replica: g.replica}
	if g.hardUnwritten {
		h := g.hard
		s.hard = &h
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

// flushProposals gives raft what may be proposed and reports the rest. An
// entry enters a log only under the term it was made for: raft refuses it if
// this leadership, the one last reported, is over, and a later one begins only
// with a vote that is written first.
func (c *Core) flushProposals(g *group) {
	if len(g.proposals) == 0 {
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
			err = g.node.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica), Entries: ents})
		}
		if err != nil || len(ents) < n {
			c.drop(g, all[:n], err)
		}
		all = all[n:]
	}
	clear(g.proposals)
	g.proposals = g.proposals[:0]
}

// drop reports those proposals that did not enter raft's log.
func (c *Core) drop(g *group, proposals []proposal, err error) {
	for i := range proposals {
		p := &proposals[i]
		reason := err
		switch {
		case !g.leader:
			reason = ErrNotLeader
		case !fenceHolds(p.fence, g.term):
			reason = ErrFenced
		case err == nil:
			continue
		case err == raft.ErrProposalDropped:
			reason = ErrDropped
		}
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
	for _, r := range g.rounds {
		c.failTokens(g, r.tokens)
	}
	c.failTokens(g, g.reads)
	g.rounds, g.reads, g.waiting = nil, nil, 0
}

func (c *Core) failTokens(g *group, tokens []uint64) {
	for _, t := range tokens {
		c.turn.Reads = append(c.turn.Reads, ReadResult{Shard: g.shard, Token: t, Err: ErrNotLeader})
	}
}

// Record returns the payload of the turn's next record, to be appended with
// kind KindTurn, and nil when there is none left. It is valid until the next
// call. Appended must be called in between.
func (c *Core) Record() []byte {
	if c.next == len(c.sections) {
		return nil
	}
	b := append(c.buf[:0], payloadVersion)
	from := c.next
	for ; c.next < len(c.sections); c.next++ {
		p := &c.sections[c.next]
		size := p.s.bytes()
		if c.next > from && len(b)+size > c.opts.MaxRecordBytes {
			break
		}
		if c.next == from && size > c.opts.MaxRecordBytes {
			if first, rest, ok := p.s.split(c.opts.MaxRecordBytes); ok {
				c.record = []pending{{p.g, first}}
				p.s = rest
				c.buf = appendSection(b, &first)
				return c.buf
			}
		}
		b = appendSection(b, &p.s)
	}
	c.record = c.sections[from:c.next]
	c.buf = b
	return b
}

// KindTurn is the kind of the records that Record returns.
const KindTurn byte = kindTurn

// bytes is the length of the section, a little too much.
func (s *section) bytes() int {
	n := sectionHeadBytes
	if s.conf != nil {
		st := s.conf.state
		n += 17 + 8*(len(st.GetVoters())+len(st.GetLearners())+len(st.GetVotersOutgoing())+len(st.GetLearnersNext()))
	}
	for _, e := range s.ents {
		n += entryHeadBytes + len(e.GetData())
	}
	return n
}

// split cuts a section that is too long for one record in two. Each part is a
// state that raft may start from: the first claims nothing committed that it
// does not hold.
func (s *section) split(limit int) (first, rest section, ok bool) {
	if len(s.ents) < 2 {
		return first, rest, false
	}
	n, size := 0, sectionHeadBytes
	for ; n < len(s.ents)-1; n++ {
		if size += entryHeadBytes + len(s.ents[n].GetData()); size > limit && n > 0 {
			break
		}
	}
	first, rest = *s, *s
	first.ents, rest.ents = s.ents[:n], s.ents[n:]
	rest.first = s.first + uint64(n)
	first.conf = nil
	if s.hard != nil {
		h := *s.hard
		h.commit = min(h.commit, rest.first-1)
		first.hard = &h
	}
	return first, rest, true
}

// Appended says where the last record went.
func (c *Core) Appended(pos wal.Position) {
	for i := range c.record {
		g, s := c.record[i].g, &c.record[i].s
		if s.hard != nil {
			g.written.hard = *s.hard
			g.hardUnwritten = *s.hard != g.hard
		}
		if s.conf != nil {
			g.written.conf, g.confUnwritten = *s.conf, false
		}
		if len(s.ents) > 0 {
			g.marked(s.first, pos)
		}
	}
	c.record = nil
}

// Finish ends the turn after its records are durable.
func (c *Core) Finish() {
	for _, g := range c.taken {
		c.finish(g)
	}
}

func (c *Core) finish(g *group) {
	g.log.append(g.ready.Entries)
	c.complete(g, &g.ready)
	g.ready = raft.Ready{}
	if g.leader && !g.joint() && g.node.HasReady() {
		// What the leader just stored may be a quorum: with one voter it is.
		// Nothing of this needs another sync.
		second := g.node.Ready()
		if second.MustSync {
			g.ready, g.held = second, true
			c.touch(g)
			return
		}
		g.note(second.HardState)
		for _, m := range second.Messages {
			if isCarried(m.GetType()) {
				c.turn.Late = append(c.turn.Late, Message{g.shard, m})
			}
		}
		c.complete(g, &second)
	}
	if g.confUnwritten || g.campaign && !g.leader || g.node.HasReady() {
		c.touch(g)
	}
}

// complete hands out what a ready decided, after it is durable, and lets raft
// go on.
func (c *Core) complete(g *group, rd *raft.Ready) {
	c.observe(g, rd.SoftState)
	c.commit(g, rd.CommittedEntries)
	for _, s := range rd.ReadStates {
		for _, token := range g.confirm(binary.LittleEndian.Uint64(s.RequestCtx)) {
			c.turn.Reads = append(c.turn.Reads, ReadResult{Shard: g.shard, Token: token, Index: s.Index})
		}
		if len(g.reads) > 0 {
			c.touch(g)
		}
	}
	g.node.Advance(*rd)
}

// observe reports a change of term or leadership.
func (c *Core) observe(g *group, s *raft.SoftState) {
	lead, leader := g.lead, g.leader
	if s != nil {
		lead, leader = s.Lead, s.RaftState == raft.StateLeader
	}
	if g.hard.term == g.term && lead == g.lead && leader == g.leader {
		return
	}
	if g.leader && (!leader || g.hard.term != g.term) {
		c.failReads(g)
	}
	if leader != g.leader || g.hard.term != g.term {
		g.readable = false
	}
	g.term, g.lead, g.leader = g.hard.term, lead, leader
	g.campaign = g.soleVoter() && !leader
	c.turn.Leaders = append(c.turn.Leaders, LeaderChange{g.shard, sharding.Term(g.term), sharding.ReplicaID(lead), leader})
}

// commit hands committed entries to the state machine and applies changes of
// membership.
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
	c.cutDue = true
	if g.leader && last.GetTerm() == g.term && !g.readable {
		g.readable = true
		if len(g.reads) > 0 {
			c.touch(g)
		}
	}
	c.turn.Applied = append(c.turn.Applied, Batch{g.shard, out})
}

// changeMembers applies a committed change, unless the log already says that
// it was: then raft was started with it.
func (c *Core) changeMembers(g *group, e *pb.Entry) {
	if e.GetIndex() <= g.conf.index || planted == 12 && g.replica%2 == 0 {
		return
	}
	change := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), change); err != nil {
		panic(fmt.Sprintf("raftgroup: shard %d: membership change at index %d: %v", g.shard, e.GetIndex(), err))
	}
	g.conf = membership{index: e.GetIndex(), state: g.node.ApplyConfChange(change)}
	g.confUnwritten = true
	c.settle(g)
}
