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
	// Quorum is set if the alive nodes are a quorum of the voters. Quiescent is
	// set if the group is asleep.
	Quorum, Quiescent bool
	// Stopped is the reason why the replica has stepped aside, if it has.
	Stopped sharding.StopReason
	// Commit, Applied, First and Last are raft indexes; First-1 is the
	// truncated index.
	Commit, Applied, First, Last uint64
	// Bytes is the memory used by entries.
	Bytes int64
	// Voters and Learners are the members according to the durable log. Outgoing
	// are the outgoing voters of an unfinished joint change.
	Voters, Learners, Outgoing []sharding.ReplicaID
	// Match is the index up to which each member's log is known to match the
	// leader's. It is set only on the leader.
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

// statuses returns the status of all replicas, sorted by shard.
func (c *Core) statuses() []Status {
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

// Change is a membership change. A single change is applied at once; several
// changes go through a joint membership, which the leader leaves automatically.
type Change struct {
	AddLearners, AddVoters, Remove []sharding.ReplicaID
}

// ChangeMembers proposes a membership change. Only one change may be in
// progress: raft turns a second change into an entry without effect.
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

// finalRecord returns the payload of a turn record with all state that was not
// written because no turn required it, or nil if there is no such state. It is
// used only when a loop ends. Entries of an unfinished turn are not included.
func (c *Core) finalRecord() []byte {
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
	// Groups counts the replicas on this node, Awake the replicas whose clock
	// runs, Leading the replicas that lead, and Stopped the replicas whose
	// state machine has stopped.
	Groups, Awake, Leading, Stopped int
	// Peers counts the other known nodes, and Suspected the suspected nodes
	// among them.
	Peers, Suspected int
	// SendingSnapshots counts the snapshots in transfer or queued. HeldBytes is
	// the size of the log entries that are kept on disk for the followers that
	// receive them.
	SendingSnapshots int
	HeldBytes        int64
	// KeptBytes are HeldBytes plus the files of snapshots that are being sent
	// or were partly received.
	KeptBytes int64
	Counters
}

// Counters are monotonic.
type Counters struct {
	// Proposals counts the proposals that entered a log on this node, and
	// ProposalsDropped the proposals that entered no log.
	Proposals, ProposalsDropped uint64
	// Elections counts the elections won on this node. Campaigns counts the
	// campaigns started because a leader's node was suspected.
	Elections, Campaigns uint64
	// Sleeps and Wakes count transitions of groups.
	Sleeps, Wakes uint64
	// MessagesSent counts the messages that were put into frames.
	// MessagesUnlocated counts the messages that were dropped because the node
	// of their replica is unknown.
	MessagesSent, MessagesUnlocated uint64
	// MessagesReceived counts the messages for a replica on this node, and
	// MessagesRefused the messages for other replicas or from unknown leaders while
	// the replica has a leader. MessagesForged counts
	// messages that came from a sender that may not send them, or that no
	// correct replica could send. FramesRefused counts malformed frames.
	MessagesReceived, MessagesRefused uint64
	MessagesForged, FramesRefused     uint64
	// MessagesOverrun counts the messages dropped because a queue was full.
	MessagesOverrun uint64
	// SnapshotsOutrun counts the snapshots sent in vain because the log entries
	// after them could not be kept.
	SnapshotsOutrun uint64
	// SnapshotsResumed counts the snapshots that continued after an interruption.
	// SnapshotFilesDamaged counts the snapshot files that were found damaged while
	// being sent, and were written again.
	SnapshotsResumed, SnapshotFilesDamaged uint64

	FramesSent, BytesSent, Turns uint64
	// Readies counts the turns of groups that took a raft.Ready, and Steady the
	// turns of groups that did not.
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
