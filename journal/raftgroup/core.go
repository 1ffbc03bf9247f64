package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/election"
	"github.com/hostd/hostd/journal/raftgroup/nodes"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/transfer"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Core is the pure part: many raft groups and what they want done. It belongs
// to one goroutine. A turn goes
//
//	inputs* ─▶ Begin ─▶ send Early ─▶ (records.turn ─▶ append ─▶ records.appended)* ─▶ sync if MustSync ─▶ Finish ─▶ send Late, report, apply
//
// and only groups that something happened to take part in it.
type Core struct {
	opts   Options
	groups map[sharding.ShardID]*group
	// order has the groups by shard: what is written never depends on a map.
	order  []*group
	clocks clocks
	mail   mail
	dirty  []*group
	spare  []*group // the other buffer of dirty

	now       uint64 // ticks
	nodes     *nodes.Table
	elections *election.List
	transfers transfers
	retention retention
	// unlocated groups have a voter whose node nobody knows.
	unlocated []*group
	stats     Counters
	led       int // groups that lead

	// former has the shards of which a replica was removed.
	former  wire.Former
	stopped stoppedGroups

	// probation: no group votes, campaigns or answers yet.
	probation bool

	context uint64 // of the last round of reads

	turn    Turn
	taken   []*group // groups with a ready in this turn
	records records
	buf     []byte
}

// Turn is what one turn wants done. Its slices are valid until the next Begin;
// what they hold belongs to the receiver.
type Turn struct {
	// Early messages may leave before the sync.
	Early []Posted
	// MustSync says that the records must be durable before Finish.
	MustSync bool
	// Leaders and Quorums are reported before Applied, Dropped and Reads after
	// it.
	Leaders []LeaderChange
	Quorums []QuorumChange
	// Installs come before Applied.
	Installs []Installation
	Applied  []Batch
	Dropped  []Dropped
	Reads    []ReadResult
	// Snapshots are to be sent after the sync.
	Snapshots []*transfer.Outgoing
	// Late messages leave after the sync.
	Late []Posted
}

// Posted is a message on its way out.
type Posted struct {
	wire.Message
	to *nodes.Node
}

// LeaderChange is a call of Sink.LeaderChanged.
type LeaderChange struct {
	Shard  sharding.ShardID
	Term   sharding.Term
	Leader sharding.ReplicaID
	Self   bool
}

// QuorumChange is a call of Sink.QuorumChanged.
type QuorumChange struct {
	Shard sharding.ShardID
	OK    bool
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
func NewCore(rec *recovery.Recovered, opts Options) (*Core, error) {
	c := &Core{
		opts: opts.withDefaults(), groups: map[sharding.ShardID]*group{},
		former: rec.Former, probation: opts.Probation,
	}
	c.transfers.opts, c.transfers.stats = &c.opts, &c.stats
	c.retention.opts, c.retention.transfers, c.retention.watermark = &c.opts, &c.transfers, rec.Watermark
	c.retention.due = slices.ContainsFunc(rec.Groups, func(r recovery.Replica) bool { return r.Snapshot != 0 })
	c.clocks.stats, c.mail.stats, c.records.limit = &c.stats, &c.stats, c.opts.MaxRecordBytes
	c.elections = election.NewList(func(r election.Replica) {
		c.campaign(r.(*group))
		c.stats.Campaigns++
	})
	c.nodes = nodes.NewTable(c.opts.SilenceTicks, c.opts.Locate)
	for i := range rec.Groups {
		g := recovered(&rec.Groups[i])
		applied := g.log.Cut()
		if opts.Applied != nil {
			applied = opts.Applied(g.shard)
		}
		if err := g.newNode(&c.opts, applied, c.transfers.describer(g)); err != nil {
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
	c.settle(g)
	c.reckon(g)
	c.touch(g)
}

// remove takes a group out of everything that knows it; one that is dirty is
// passed over by the next turn.
func (c *Core) remove(g *group) {
	if g.leader {
		c.led--
	}
	g.removed = true
	c.opts.release(g.shard) // the next replica of the shard is another one
	g.log.ForgetBehind()
	c.clocks.stop(g)
	delete(c.groups, g.shard)
	same := func(o *group) bool { return o == g }
	c.order = slices.DeleteFunc(c.order, same)
	c.elections.Remove(g)
	c.unlocated = slices.DeleteFunc(c.unlocated, same)
	c.stopped.remove(g)
	prune(c.nodes, c.order)
}

// settle follows a change of membership: who is alone needs no clock.
func (c *Core) settle(g *group) {
	g.campaign = g.soleVoter() && !g.leader && g.stopped == sharding.NotStopped
	c.clocks.wake(g)
	if g.alone() {
		c.clocks.stop(g)
	} else {
		c.clocks.start(g)
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
func (c *Core) Busy() bool { return len(c.dirty)+len(c.mail.waiting) > 0 }

// Tick moves the clock of the groups that are awake; it does not look at the
// others.
func (c *Core) Tick() {
	if c.probation {
		return
	}
	c.now++
	c.nodes.Tick()
	for n := c.nodes.Expired(); n != nil; n = c.nodes.Expired() {
		c.lose(n)
	}
	c.transfers.tick()
	for _, g := range slices.Clone(c.unlocated) {
		c.reckon(g)
	}
	c.elections.Tick(c.now, c.opts.MaxCampaigns)
	c.clocks.each(c.tick)
}

// tick moves the clock of one group, which may stop it.
func (c *Core) tick(g *group) {
	defer c.contain(g)
	switch {
	case c.opts.holdsBack(g.shard):
	case c.fallAsleep(g):
	case g.stopped != sharding.NotStopped:
		c.beat(g)
	default:
		g.idle++
		c.mail.flush(g)
		g.leave()
		c.mail.listen(g, c.opts.HeartbeatTicks)
		g.node.Tick()
		c.touch(g)
	}
}

// CreateRecord returns the payload of the log record that creates groups; the
// groups exist after Created.
func (c *Core) CreateRecord(configs []GroupConfig) ([]byte, error) {
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

// Created starts the groups of a record that was synced.
func (c *Core) Created(configs []GroupConfig) error {
	for _, config := range configs {
		g := newGroup(config.Shard, uint64(config.Replica))
		g.conf, g.written.Conf = config.membership(), config.membership()
		if f, ok := c.former[config.Shard]; ok {
			g.generation, g.written.Generation = f.Generation+1, f.Generation+1
		}
		if err := g.newNode(&c.opts, 0, c.transfers.describer(g)); err != nil {
			return err
		}
		c.add(g)
	}
	return nil
}

// Step takes a message that came from a node. One for a replica that is not
// here is dropped: its sender knows an earlier one of this node.
func (c *Core) Step(from sharding.NodeID, m wire.Message) {
	g := c.groups[m.Shard]
	if g == nil || c.probation || c.opts.holdsBack(g.shard) || g.failed || m.Raft.GetTo() != g.replica || !wire.IsCarried(m.Raft.GetType()) {
		c.stats.MessagesRefused++
		return
	}
	if !g.places(&c.opts, from, m.Raft.GetFrom()) || !g.believes(m.Raft) {
		c.stats.MessagesForged++
		return
	}
	defer c.contain(g)
	c.stats.MessagesReceived++
	if !c.takes(g, m.Raft) {
		return
	}
	if g.routes.Learn(m.Raft.GetFrom(), from) {
		c.reckon(g)
	}
	if t := m.Raft.GetType(); t == pb.MsgPreVote || t == pb.MsgVote {
		if m.Raft.GetTerm() > g.term && m.Raft.GetFrom() == g.lead {
			c.forget(g) // who asks for votes of a later term leads no more
		}
		if g.candidacy.Asked(c.now, g.log.Ahead(m.Raft)) {
			c.elections.Now(c.now)
		}
	}
	if m.Note != wire.NoteNone && c.told(g, &m) {
		return
	}
	c.clocks.heed(g, m.Raft)
	if m.Raft.GetType() == pb.MsgAppResp && m.Raft.GetTerm() == g.term && m.Raft.GetIndex() == 0 && !m.Raft.GetReject() {
		// It told the leader of an earlier term of this one. The leader of this
		// one would take it for the state of an empty log, and where it has
		// entry 1 no more, want to send a snapshot.
		return
	}
	if outdated(g, m.Raft) {
		return
	}
	c.step(g, m.Raft)
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
	c.clocks.wake(g)
	c.touch(g)
	return nil
}

// ReadIndex asks for a confirmation of leadership.
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
	c.touch(g)
	return nil
}

// TransferLeader asks the leader, this replica, to hand its leadership over. To
// a node that is silent it is not handed.
func (c *Core) TransferLeader(shard sharding.ShardID, to sharding.ReplicaID) error {
	g := c.groups[shard]
	if g == nil {
		return ErrUnknownShard
	}
	if !g.leader {
		return ErrNotLeader
	}
	if n := g.routes.Locate(uint64(to)); n != nil && n.Silent() {
		return nil
	}
	defer c.contain(g)
	c.clocks.wake(g)
	g.node.TransferLeader(uint64(to))
	g.handing = true
	c.touch(g)
	return nil
}

// outdated reports whether a follower said before its snapshot came that it
// has less than that. Snapshots do not travel with the messages, so one that
// was sent earlier can come later, and raft, which hopes that this is rare,
// would send the whole snapshot once more.
func outdated(g *group, m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && m.GetReject() && g.transfer.pins.Has(m.GetFrom(), m.GetRejectHint())
}
