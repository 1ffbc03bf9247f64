package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/election"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Core is the pure part of the raft loop: many raft groups, and the work they
// want done. It belongs to one goroutine.
//
// Problem: a node runs hundreds of raft groups, and each of them would like its
// own fsync. Approach: all groups that received input share one turn, one batch
// of log records and one sync:
//
//	inputs* ─▶ beginTurn ─▶ send Early ─▶ (records.nextTurn ─▶ append ─▶ records.onAppended)* ─▶ sync if MustSync ─▶ finishTurn ─▶ send Late, report, apply
//
// beginTurn takes a raft.Ready from every dirty group and turns it into log
// sections. finishTurn runs after the sync; it hands committed entries to the
// state machine and lets raft advance. A group whose leader alone can commit
// the entries that it stored, such as a group with a single voter, gets a
// second raft.Ready in the same turn if that needs no further sync.
//
// Invariants: a message that depends on stored state (votes, append responses)
// leaves after the sync that covers the state. Only a leader's appends and
// heartbeats may leave before the sync, and only under a membership that is
// itself on disk, because a leader may ask other replicas to store entries that
// it has not stored itself yet. A group that received no input does not
// participate in the turn, so an idle group costs nothing.
//
// Rejected: one goroutine and one sync per group, which costs a sync per group
// and command; and a second core for the simulator, which would test a copy.
// The simulator drives this type.
type Core struct {
	opts   Options
	groups map[sharding.ShardID]*group
	// order holds the groups sorted by shard, so that records never depend on
	// map order.
	order  []*group
	clocks clocks
	mail   mail
	dirty  []*group
	spare  []*group // the other buffer of dirty

	now       uint64 // number of ticks so far
	nodes     *nodeTable
	elections *election.List
	transfers transfers
	retention retention
	// unlocated groups have a voter whose node is unknown.
	unlocated []*group
	stats     Counters
	leading   int // number of groups that lead

	// former records the shards whose replica was removed from this node.
	former  wire.Former
	stopped stoppedGroups

	// awaitingRelease means that no group votes, campaigns or responds yet.
	awaitingRelease bool

	context uint64 // context of the last ReadIndex round

	turn    turn
	readied []*group // groups with a ready in this turn
	records records
	buf     []byte
}

// turn is the work of one turn. Its slices are valid until the next beginTurn;
// the receiver owns their elements.
type turn struct {
	// Early messages may be sent before the sync.
	Early []envelope
	// MustSync means that the records must be durable before finishTurn.
	MustSync bool
	// Leaders and Quorums are reported before Applied; Dropped and Reads after
	// it.
	Leaders []leaderChange
	Quorums []quorumChange
	// Installs come before Applied.
	Installs []installation
	Applied  []batch
	Dropped  []droppedProposal
	Reads    []readResult
	// Snapshots are sent after the sync.
	Snapshots []*Outgoing
	// Late messages are sent after the sync.
	Late []envelope
}

// envelope is an outgoing message.
type envelope struct {
	wire.Message
	to *peerNode
}

// leaderChange is a call of Sink.LeaderChanged.
type leaderChange struct {
	Shard  sharding.ShardID
	Term   sharding.Term
	Leader sharding.ReplicaID
	Self   bool
}

// quorumChange is a call of Sink.QuorumChanged.
type quorumChange struct {
	Shard sharding.ShardID
	OK    bool
}

// batch is a call of StateMachine.Apply.
type batch struct {
	Shard   sharding.ShardID
	Entries []journal.Committed
}

// droppedProposal is a call of Sink.ProposalDropped.
type droppedProposal struct {
	Shard    sharding.ShardID
	Fence    sharding.Term
	Proposal uint64
	Err      error
}

// readResult is a call of Sink.ReadConfirmed, or of ReadFailed if Err is set.
type readResult struct {
	Shard sharding.ShardID
	Token uint64
	Index uint64
	Err   error
}

// newCore starts the recovered groups. A group whose only voter is this replica
// campaigns in the first turn.
func newCore(rec *recovery.Recovered, opts Options) (*Core, error) {
	c := &Core{
		opts: opts.withDefaults(), groups: map[sharding.ShardID]*group{},
		former: rec.Former, awaitingRelease: opts.AwaitAttestation,
	}
	c.transfers.opts, c.transfers.stats = &c.opts, &c.stats
	c.retention.opts, c.retention.transfers, c.retention.watermark = &c.opts, &c.transfers, rec.Watermark
	c.retention.bringUpToDate = func(g *group) {
		defer c.recoverPanic(g)
		g.node()
	}
	c.retention.pending = slices.ContainsFunc(rec.Groups, func(r recovery.Replica) bool { return r.Snapshot != 0 })
	c.clocks.stats, c.mail.stats, c.records.limit = &c.stats, &c.stats, c.opts.MaxRecordBytes
	c.elections = election.NewList(func(r election.Replica) {
		c.campaign(r.(*group))
		c.stats.Campaigns++
	})
	c.nodes = newNodeTable(c.opts.SuspectTicks, c.opts.Placement)
	for i := range rec.Groups {
		g := newRecoveredGroup(&rec.Groups[i])
		applied := g.log.TruncatedIndex()
		if opts.AppliedIndex != nil {
			applied = opts.AppliedIndex(g.shard)
		}
		if err := g.newNode(&c.opts, applied, c.transfers.snapshotFunc(g)); err != nil {
			return nil, err
		}
		c.add(g)
	}
	return c, nil
}

func (c *Core) add(g *group) {
	c.groups[g.shard] = g
	g.routes = c.nodes.Routes(g.shard)
	i, _ := slices.BinarySearchFunc(c.order, g.shard, func(g *group, s sharding.ShardID) int { return int(int64(g.shard) - int64(s)) })
	c.order = slices.Insert(c.order, i, g)
	c.updateClock(g)
	c.updateQuorum(g)
	c.markDirty(g)
}

// remove removes a group from every structure of the core. If the group is
// dirty, the next turn skips it.
func (c *Core) remove(g *group) {
	if g.leader {
		c.leading--
	}
	g.removed = true
	c.opts.release(g.shard) // the hold must not apply to the shard's next replica
	g.log.DropCatchUp()
	c.clocks.stop(g)
	delete(c.groups, g.shard)
	same := func(o *group) bool { return o == g }
	c.order = slices.DeleteFunc(c.order, same)
	c.elections.Remove(g)
	c.unlocated = slices.DeleteFunc(c.unlocated, same)
	c.stopped.remove(g)
	prune(c.nodes, c.order)
}

// updateClock updates a group's clock after a membership change: a group
// without other members needs no clock.
func (c *Core) updateClock(g *group) {
	g.campaign = g.isSoleVoter() && !g.leader && g.stopped == sharding.NotStopped
	c.clocks.wake(g)
	if g.isAlone() {
		c.clocks.stop(g)
	} else {
		c.clocks.start(g)
	}
}

// markDirty makes the group part of the next turn.
func (c *Core) markDirty(g *group) {
	if !g.dirty {
		g.dirty = true
		c.dirty = append(c.dirty, g)
	}
}

// HasWork reports whether a turn has anything to do.
func (c *Core) HasWork() bool { return len(c.dirty)+len(c.mail.waiting) > 0 }

// tickAll advances the clocks of the groups that are awake. It does not visit
// the other groups.
func (c *Core) tickAll() {
	if c.awaitingRelease {
		return
	}
	c.now++
	c.nodes.Tick()
	for n := c.nodes.ExpireNext(); n != nil; n = c.nodes.ExpireNext() {
		c.onNodeSuspected(n)
	}
	c.transfers.tick()
	for _, g := range slices.Clone(c.unlocated) {
		c.updateQuorum(g)
	}
	c.elections.Tick(c.now, c.opts.MaxCampaigns)
	c.clocks.each(c.tick)
}

// tick advances the clock of one group, and may stop the clock.
func (c *Core) tick(g *group) {
	defer c.recoverPanic(g)
	switch {
	case c.opts.isHeld(g.shard):
	case c.fallAsleep(g):
	case g.stopped != sharding.NotStopped:
		c.tickStopped(g)
	default:
		g.idle++
		c.mail.flush(g)
		g.leaveJoint()
		c.mail.pokeLeader(g, c.opts.HeartbeatTicks)
		if g.steady.skipTick(&c.opts) {
			return
		}
		g.node().Tick()
		c.markDirty(g)
	}
}

// createRecord returns the payload of the log record that creates groups. The
// groups exist once finishCreate is called.
func (c *Core) createRecord(configs []GroupConfig) ([]byte, error) {
	b := wire.BeginList(c.buf[:0], len(configs))
	for i, config := range configs {
		if err := config.Validate(); err != nil {
			return nil, err
		}
		same := func(o GroupConfig) bool { return o.Shard == config.Shard }
		if config.Replica <= c.former[config.Shard].Replica {
			return nil, fmt.Errorf("create shard %d: %w", config.Shard, ErrReplicaRemoved)
		}
		if c.groups[config.Shard] != nil || slices.ContainsFunc(configs[:i], same) {
			return nil, fmt.Errorf("create shard %d: %w", config.Shard, ErrGroupExists)
		}
		b = wire.AppendReplica(b, config.Shard, config.Replica)
		b = wire.AppendMembership(b, config.membership())
	}
	c.buf = b
	return b, nil
}

// finishCreate starts the groups of a record that was synced.
func (c *Core) finishCreate(configs []GroupConfig) error {
	for _, config := range configs {
		g := newGroup(config.Shard, uint64(config.Replica))
		g.conf, g.written.Conf = config.membership(), config.membership()
		if f, ok := c.former[config.Shard]; ok {
			g.generation, g.written.Generation = f.Generation+1, f.Generation+1
		}
		if err := g.newNode(&c.opts, 0, c.transfers.snapshotFunc(g)); err != nil {
			return err
		}
		c.add(g)
	}
	return nil
}

// Step handles a message from a node. A message for a replica that is not here
// is dropped: the sender knows an earlier replica of this node.
func (c *Core) Step(from sharding.NodeID, m wire.Message) {
	g := c.groups[m.Shard]
	if g == nil || c.awaitingRelease || c.opts.isHeld(g.shard) || g.failed || m.Raft.GetTo() != g.replica || !wire.IsCarried(m.Raft.GetType()) {
		c.stats.MessagesRefused++
		return
	}
	by := c.senderOf(g, from, m.Raft.GetFrom())
	if by == senderForeign {
		c.stats.MessagesForged++
		return
	}
	if by == senderUnplaced && c.ignoresUnplaced(g) {
		c.stats.MessagesRefused++
		return
	}
	if !g.isPlausible(m.Raft) {
		c.stats.MessagesForged++
		if by == senderKnown && g.loss.onImplausible(g, &m, c.now) {
			c.loseEntries(g, m.Raft)
		}
		return
	}
	if by == senderKnown {
		g.loss.onPlausible(g, m.Raft)
	}
	defer c.recoverPanic(g)
	c.stats.MessagesReceived++
	if !c.acceptsMessage(g, m.Raft) {
		return
	}
	if g.routes.Learn(m.Raft.GetFrom(), from) {
		c.updateQuorum(g)
	}
	if t := m.Raft.GetType(); t == pb.MsgPreVote || t == pb.MsgVote {
		if m.Raft.GetTerm() > g.term && m.Raft.GetFrom() == g.lead {
			c.forgetLeader(g) // a replica that asks for votes of a later term no longer leads
		}
		if g.candidacy.OnVoteRequest(c.now, g.log.IsAheadOf(m.Raft)) {
			c.elections.RunDue(c.now)
		}
	}
	if m.Note != wire.NoteNone && c.handleNote(g, &m) {
		return
	}
	c.clocks.wakeForMessage(g, m.Raft)
	if m.Raft.GetType() == pb.MsgAppResp && m.Raft.GetTerm() == g.term && m.Raft.GetIndex() == 0 && !m.Raft.GetReject() {
		// The sender answers the leader of an earlier term with the current term. The
		// current leader would take index 0 for the state of an empty log and, if it
		// has truncated entry 1, would send a snapshot.
		return
	}
	if isOutdated(g, m.Raft) {
		return
	}
	if !g.holdSteady(m.Raft) {
		c.step(g, m.Raft)
	}
	c.markDirty(g)
}

// Propose queues a proposal. Its outcome is reported later unless an error is
// returned. Raft owns the data.
func (c *Core) Propose(shard sharding.ShardID, fence sharding.Term, number uint64, data []byte) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if len(data) > c.opts.MaxEntryBytes {
		return ErrTooLarge
	}
	g.proposals = append(g.proposals, proposal{fence, number, &pb.Entry{Data: data}})
	c.clocks.wake(g)
	c.markDirty(g)
	return nil
}

// ReadIndex requests a confirmation that this replica still leads the shard.
func (c *Core) ReadIndex(shard sharding.ShardID, token uint64) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if g.reads.Len() >= c.opts.MaxReads {
		return ErrBusy
	}
	g.reads.Add(token)
	c.clocks.wake(g)
	c.markDirty(g)
	return nil
}

// TransferLeader asks this replica, the leader, to transfer its leadership. It
// does nothing if the other node is suspected.
func (c *Core) TransferLeader(shard sharding.ShardID, to sharding.ReplicaID) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if !g.leader {
		return ErrNotLeader
	}
	if n := g.routes.Locate(uint64(to)); n != nil && n.IsSuspected() {
		return nil
	}
	defer c.recoverPanic(g)
	c.clocks.wake(g)
	g.node().TransferLeader(uint64(to))
	g.transferPending = true
	c.markDirty(g)
	return nil
}

// isOutdated reports whether m is an outdated rejection: the follower sent it
// before it installed a snapshot that it is known to have. Snapshots travel on
// a separate connection, so an older rejection may arrive after the snapshot
// did. Raft assumes that this is rare and would send the whole snapshot again.
func isOutdated(g *group, m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && m.GetReject() && g.transfer.pins.HasInstalled(m.GetFrom(), m.GetRejectHint())
}
