package raftgroup

import (
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Status is a snapshot of a replica's state.
type Status struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	Leader  sharding.ReplicaID // 0 while none is known
	Self    bool               // this replica leads
	// Quorum: the alive nodes are a quorum of the voters. Quiescent: the group
	// is asleep.
	Quorum, Quiescent bool
	// Stopped is the reason if the replica has stepped aside.
	Stopped sharding.StopReason
	// Commit, Applied, First and Last are raft indexes; First-1 is the
	// truncated index.
	Commit, Applied, First, Last uint64
	// Bytes is the memory used by entries.
	Bytes int64
	// Voters and Learners are the members as durable in the log, Outgoing those
	// of an unfinished joint change.
	Voters, Learners, Outgoing []sharding.ReplicaID
	// Match is how far each member's log is known to agree; only on the leader.
	Match map[sharding.ReplicaID]uint64
	// Inactive members have not responded since the leader's last quorum
	// check.
	Inactive []sharding.ReplicaID
}

// Status returns the status of a shard's replica.
func (c *Core) Status(shard sharding.ShardID) (Status, error) {
	g := c.groups[shard]
	if g == nil {
		return Status{}, ErrUnknownShard
	}
	return g.status(), nil
}

// Statuses returns the status of all replicas, sorted by shard.
func (c *Core) Statuses() []Status {
	out := make([]Status, len(c.order))
	for i, g := range c.order {
		out[i] = g.status()
	}
	return out
}

func (g *group) status() Status {
	st := g.raw.BasicStatus() // Status would also copy the membership and the inflight windows
	conf := g.written.Conf.State
	s := Status{
		Shard: g.shard, Replica: sharding.ReplicaID(g.replica), Term: sharding.Term(g.term),
		Leader: sharding.ReplicaID(g.lead), Self: g.leader, Quorum: g.quorum, Quiescent: g.asleep, Stopped: g.stopped,
		Commit: g.commitIndex(&st), Applied: g.applied, First: g.log.TruncatedIndex() + 1, Last: g.log.Last(), Bytes: g.log.Bytes(),
		Voters: wire.ReplicaIDs(conf.GetVoters()), Learners: wire.ReplicaIDs(conf.GetLearners()), Outgoing: wire.ReplicaIDs(conf.GetVotersOutgoing()),
	}
	if st.RaftState == raft.StateLeader {
		s.Match = make(map[sharding.ReplicaID]uint64, len(s.Voters)+len(s.Learners)+len(s.Outgoing))
		for _, p := range g.progress() {
			s.Match[sharding.ReplicaID(p.id)] = p.match
			if p.id != g.replica && !p.active {
				s.Inactive = append(s.Inactive, sharding.ReplicaID(p.id))
			}
		}
	}
	return s
}

// Change is a membership change. A single change is applied at once; several go
// through a joint membership, which the leader leaves automatically.
type Change struct {
	AddLearners, AddVoters, Remove []sharding.ReplicaID
}

// ChangeMembers proposes a membership change. Only one may be in progress: raft
// turns a second one into an entry without effect.
func (c *Core) ChangeMembers(shard sharding.ShardID, fence sharding.Term, change Change) error {
	g := c.groups[shard]
	switch {
	case g == nil:
		return ErrUnknownShard
	case !g.leader:
		return ErrNotLeader
	case !isFenceValid(fence, g.term):
		return ErrFenced
	}
	cc := &pb.ConfChangeV2{}
	add := func(t pb.ConfChangeType, ids []sharding.ReplicaID) {
		for _, id := range ids {
			cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: t.Enum(), NodeId: new(uint64(id))})
		}
	}
	add(pb.ConfChangeAddLearnerNode, change.AddLearners)
	add(pb.ConfChangeAddNode, change.AddVoters)
	add(pb.ConfChangeRemoveNode, change.Remove)
	if len(cc.Changes) == 0 {
		return nil
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		return err
	}
	defer c.recoverPanic(g)
	c.clocks.wake(g)
	err = g.node().Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica),
		Entries: []*pb.Entry{{Type: pb.EntryConfChangeV2.Enum(), Data: data}}})
	c.markDirty(g)
	if err == raft.ErrProposalDropped {
		return ErrDropped
	}
	return err
}

// FinalRecord returns the payload of a turn record with all state that is known
// and unwritten because no turn required it, or nil if there is none. Only a
// loop that ends needs it. Entries of an unfinished turn are not included.
func (c *Core) FinalRecord() []byte {
	b := append(c.buf[:0], wire.PayloadVersion)
	for _, g := range c.order {
		if !g.hardUnwritten && !g.confUnwritten {
			continue
		}
		s := g.unwrittenSection(g.log.Last())
		b = wire.AppendSection(b, &s)
	}
	c.buf = b
	if len(b) == 1 {
		return nil
	}
	return b
}

// Stats counts the work of a Core and its Driver since they started, and
// describes their current state.
type Stats struct {
	// Groups are the replicas here. Awake counts those whose clock runs, Led
	// the leaders, and Stopped those whose state machine has stopped.
	Groups, Awake, Leading, Stopped int
	// Peers are the other known nodes. Silent counts the suspected ones.
	Peers, Suspected int
	// SendingSnapshots are in transfer or queued. HeldBytes of the log are kept
	// on disk for their followers.
	SendingSnapshots int
	HeldBytes        int64
	// KeptBytes are HeldBytes plus the files of snapshots that are being sent
	// or were partly received.
	KeptBytes int64
	Counters
}

// Counters are monotonic.
type Counters struct {
	// Proposals entered a log here; ProposalsDropped did not.
	Proposals, ProposalsDropped uint64
	// Elections were won here. Campaigns were started because a leader's node
	// was suspected.
	Elections, Campaigns uint64
	// Sleeps and Wakes count transitions of groups.
	Sleeps, Wakes uint64
	// MessagesSent were framed. MessagesUnlocated were dropped because the node
	// of their replica is unknown.
	MessagesSent, MessagesUnlocated uint64
	// MessagesReceived were for a replica here; MessagesRefused were not.
	// MessagesForged came from a sender that may not send them, or were
	// impossible. FramesRefused were malformed.
	MessagesReceived, MessagesRefused uint64
	MessagesForged, FramesRefused     uint64
	// MessagesOverrun were dropped because a queue was full.
	MessagesOverrun uint64
	// SnapshotsOutrun were sent in vain because the log behind them could not
	// be kept.
	SnapshotsOutrun uint64
	// SnapshotsResumed continued after an interruption. SnapshotFilesDamaged
	// were found damaged while being sent, and were written again.
	SnapshotsResumed, SnapshotFilesDamaged uint64

	FramesSent, BytesSent, Turns uint64
	// Readies are the turns of groups that took a raft.Ready, and Steady those
	// that did not.
	Readies, Steady uint64
}

// Stats returns the current counters.
func (c *Core) Stats() Stats {
	s := Stats{Groups: len(c.order), Awake: len(c.clocks.ticking), Leading: c.leading, Stopped: len(c.stopped.groups), Counters: c.stats}
	s.Peers, s.Suspected = c.nodes.Count()
	s.SendingSnapshots = c.transfers.sending
	for _, g := range c.order {
		behind, _ := g.log.CatchUpBytes()
		s.HeldBytes += behind
	}
	if files := c.transfers.files; files != nil {
		s.KeptBytes = files.KeptBytes()
	}
	return s
}

// Stats returns the counters as of the last tick. It does not block.
func (l *Loop) Stats() Stats {
	s := *l.published.Load()
	s.MessagesOverrun, s.FramesRefused = l.droppedMessages.Load(), l.rejectedFrames.Load()
	return s
}

// publish makes the counters visible to Stats.
func (l *Loop) publish() {
	s := l.core.Stats()
	l.published.Store(&s)
}
