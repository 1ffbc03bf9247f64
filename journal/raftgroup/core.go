package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
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
	order []*group
	// ticking are the groups whose clock goes: they are awake and not alone.
	ticking []*group
	dirty   []*group
	spare   []*group // the other buffer of dirty

	// now counts ticks. peers are in the order in which they became known;
	// unheard is how many of them were neither heard nor given up.
	now     uint64
	byNode  map[sharding.NodeID]*peer
	peers   []*peer
	unheard int
	// hunting groups campaign soon; unlocated ones have a voter whose node
	// nobody knows.
	hunting   []*group
	unlocated []*group
	stats     Counters
	led       int       // groups that lead
	outbox    []Message // of no ready; they leave with the next turn

	// former has the shards of which a replica was removed.
	former formerLives
	// sending counts the snapshots handed out; unsent ones of a turn are to be
	// reported, and obsolete files to be removed.
	sending  int
	unsent   []*Outgoing
	obsolete []string

	// watermark is the state machine's as of the last cut written.
	watermark uint64
	context   uint64
	cutDue    bool

	turn     Turn
	taken    []*group  // groups with a ready in this turn
	sections []pending // of this turn
	next     int       // the first section that is in no record yet
	record   []pending // in the record handed out
	sizes    []int64   // of logs
	// installs are groups whose ready has a snapshot, installed those of them
	// that are in a record.
	installs  []*group
	installed int
	buf       []byte
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
	Snapshots []*Outgoing
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
func NewCore(rec *Recovered, opts Options) (*Core, error) {
	c := &Core{
		opts: opts.withDefaults(), groups: map[sharding.ShardID]*group{}, byNode: map[sharding.NodeID]*peer{},
		former: rec.former, watermark: rec.Watermark,
		cutDue: slices.ContainsFunc(rec.groups, func(g *group) bool { return g.install.index != 0 }),
	}
	for _, g := range rec.groups {
		applied := g.log.cut
		if opts.Applied != nil {
			applied = opts.Applied(g.shard)
		}
		if err := c.newNode(g, applied); err != nil {
			return nil, err
		}
		c.add(g)
	}
	return c, nil
}

// newNode starts raft for a group.
func (c *Core) newNode(g *group, applied uint64) error {
	if c.opts.Snapshots != nil {
		g.log.describe = func() (*pb.Snapshot, error) { return c.describe(g) }
	}
	return g.newNode(&c.opts, applied)
}

func (c *Core) add(g *group) {
	c.groups[g.shard] = g
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
	c.stopClock(g)
	delete(c.groups, g.shard)
	same := func(o *group) bool { return o == g }
	c.order = slices.DeleteFunc(c.order, same)
	c.hunting = slices.DeleteFunc(c.hunting, same)
	c.unlocated = slices.DeleteFunc(c.unlocated, same)
	c.prune()
}

// settle follows a change of membership: who is alone needs no clock.
func (c *Core) settle(g *group) {
	g.campaign = g.soleVoter() && !g.leader
	c.wake(g)
	if g.alone() {
		c.stopClock(g)
	} else {
		c.startClock(g)
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
func (c *Core) Busy() bool { return len(c.dirty)+len(c.outbox) > 0 }

// Tick moves the clock of the groups that are awake; it does not look at the
// others.
func (c *Core) Tick() {
	c.now++
	c.expire()
	for _, g := range slices.Clone(c.unlocated) {
		c.reckon(g)
	}
	c.campaigns()
	for i := 0; i < len(c.ticking); {
		g := c.ticking[i]
		if c.rest(g) {
			continue // another took its place
		}
		g.idle++
		c.unpark(g)
		c.leave(g)
		c.listen(g)
		g.node.Tick()
		c.touch(g)
		i++
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
		if config.Replica <= c.former[config.Shard].replica {
			return nil, fmt.Errorf("create shard %d: %w", config.Shard, ErrReplicaRemoved)
		}
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
		if f, ok := c.former[config.Shard]; ok {
			g.generation, g.written.generation = f.generation+1, f.generation+1
		}
		if err := c.newNode(g, 0); err != nil {
			return err
		}
		c.add(g)
	}
	return nil
}

// Step takes a message that came from a node. One for a replica that is not
// here is dropped: its sender knows an earlier one of this node.
func (c *Core) Step(from sharding.NodeID, m Message) {
	g := c.groups[m.Shard]
	if g == nil || m.Raft.GetTo() != g.replica || !isCarried(m.Raft.GetType()) {
		c.stats.MessagesRefused++
		return
	}
	c.stats.MessagesReceived++
	c.learn(g, m.Raft.GetFrom(), from)
	if t := m.Raft.GetType(); t == pb.MsgPreVote || t == pb.MsgVote {
		if m.Raft.GetTerm() > g.term && m.Raft.GetFrom() == g.lead {
			c.forget(g) // who asks for votes of a later term leads no more
		}
		c.asked(g, m.Raft)
	}
	if m.note != noteNone && c.told(g, &m) {
		return
	}
	c.heed(g, m.Raft)
	if m.Raft.GetType() == pb.MsgAppResp && m.Raft.GetTerm() == g.term && m.Raft.GetIndex() == 0 && !m.Raft.GetReject() {
		// It told the leader of an earlier term of this one. The leader of this
		// one would take it for the state of an empty log, and where it has
		// entry 1 no more, want to send a snapshot.
		return
	}
	if g.outdated(m.Raft) {
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
	c.wake(g)
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
	g.unasked = g.asleep && g.leader && planted == 22 // answered without asking the others
	c.wake(g)
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
	c.wake(g)
	g.node.TransferLeader(uint64(to))
	g.handing = true
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
