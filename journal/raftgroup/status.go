package raftgroup

import (
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// Status describes a replica at one moment.
type Status struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	Leader  sharding.ReplicaID // 0 while none is known
	Self    bool               // this replica leads
	// Quorum: the nodes heard are a quorum of the voters. Quiescent: the group
	// sleeps.
	Quorum, Quiescent bool
	// Stopped says why the replica has stepped aside, if it has.
	Stopped sharding.StopReason
	// Commit, Applied, First and Last are raft indexes; First-1 is the cut.
	Commit, Applied, First, Last uint64
	// Bytes is what the entries in memory take.
	Bytes int64
	// Members, as the log has them for good; while a joint change is under way
	// Outgoing too.
	Voters, Learners, Outgoing []sharding.ReplicaID
	// Match is how far each member's log is known to agree, on the leader.
	Match map[sharding.ReplicaID]uint64
	// Unanswering said nothing since the leader last looked for a quorum.
	Unanswering []sharding.ReplicaID
}

// Status describes a shard's replica.
func (c *Core) Status(shard sharding.ShardID) (Status, error) {
	g := c.groups[shard]
	if g == nil {
		return Status{}, ErrUnknownShard
	}
	return g.status(), nil
}

// Statuses describes all replicas, by shard.
func (c *Core) Statuses() []Status {
	out := make([]Status, len(c.order))
	for i, g := range c.order {
		out[i] = g.status()
	}
	return out
}

func (g *group) status() Status {
	st := g.node.BasicStatus() // Status would copy the membership and the windows too
	conf := g.written.Conf.State
	s := Status{
		Shard: g.shard, Replica: sharding.ReplicaID(g.replica), Term: sharding.Term(g.term),
		Leader: sharding.ReplicaID(g.lead), Self: g.leader, Quorum: g.quorum, Quiescent: g.asleep, Stopped: g.stopped,
		Commit: st.GetCommit(), Applied: g.applied, First: g.log.Cut() + 1, Last: g.log.Last(), Bytes: g.log.Bytes(),
		Voters: wire.ReplicaIDs(conf.GetVoters()), Learners: wire.ReplicaIDs(conf.GetLearners()), Outgoing: wire.ReplicaIDs(conf.GetVotersOutgoing()),
	}
	if st.RaftState == raft.StateLeader {
		s.Match = make(map[sharding.ReplicaID]uint64, len(s.Voters)+len(s.Learners)+len(s.Outgoing))
		g.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			s.Match[sharding.ReplicaID(id)] = p.Match
			if id != g.replica && !p.RecentActive {
				s.Unanswering = append(s.Unanswering, sharding.ReplicaID(id))
			}
		})
	}
	return s
}

// Change is a change of a group's members. One alone is made at once; several
// together go through a joint membership, which the leader leaves by itself.
type Change struct {
	AddLearners, AddVoters, Remove []sharding.ReplicaID
}

// ChangeMembers proposes a change. Only one may be under way: raft turns
// another into an entry without effect.
func (c *Core) ChangeMembers(shard sharding.ShardID, fence sharding.Term, change Change) error {
	g := c.groups[shard]
	switch {
	case g == nil:
		return ErrUnknownShard
	case !g.leader:
		return ErrNotLeader
	case !fenceHolds(fence, g.term):
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
	defer c.contain(g)
	c.clocks.wake(g)
	err = g.node.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica),
		Entries: []*pb.Entry{{Type: pb.EntryConfChangeV2.Enum(), Data: data}}})
	c.touch(g)
	if err == raft.ErrProposalDropped {
		return ErrDropped
	}
	return err
}

// FinalRecord returns the payload of a turn record with everything that is
// known and not written because nothing asked for it, nil if there is nothing.
// Only a loop that ends needs it. Entries of a turn that was begun are not in
// it.
func (c *Core) FinalRecord() []byte {
	b := append(c.buf[:0], wire.PayloadVersion)
	for _, g := range c.order {
		if !g.hardUnwritten && !g.confUnwritten {
			continue
		}
		s := g.unwritten(g.log.Last())
		b = wire.AppendSection(b, &s)
	}
	c.buf = b
	if len(b) == 1 {
		return nil
	}
	return b
}

// Stats counts what a Core and its Driver did since they started, and says
// what they hold now.
type Stats struct {
	// Groups are the replicas here, Awake those whose clock goes, Led those
	// that lead. Stopped are those whose state machine has stopped.
	Groups, Awake, Led, Stopped int
	// Peers are the other nodes known, Silent those that are not heard.
	Peers, Silent int
	// SendingSnapshots are those that are sent or wait for it. HeldBytes of the
	// log are held on disk for the followers that they are for.
	SendingSnapshots int
	HeldBytes        int64
	// KeptBytes are those and the files of snapshots that are sent, or came in
	// part.
	KeptBytes int64
	Counters
}

// Counters only rise.
type Counters struct {
	// Proposals entered a log here; ProposalsDropped did not.
	Proposals, ProposalsDropped uint64
	// Elections were won here. Campaigns were begun because a leader's node
	// went silent.
	Elections, Campaigns uint64
	// Sleeps and Wakes of groups.
	Sleeps, Wakes uint64
	// MessagesSent went into frames; MessagesUnlocated were dropped because
	// nobody knew their replica's node.
	MessagesSent, MessagesUnlocated uint64
	// MessagesReceived were for a replica here; MessagesRefused were not.
	// MessagesForged were from nobody who may send them, or impossible, and
	// FramesRefused were no frames.
	MessagesReceived, MessagesRefused uint64
	MessagesForged, FramesRefused     uint64
	// MessagesOverrun were lost because too much waited.
	MessagesOverrun uint64
	// SnapshotsOutrun were sent in vain: the log behind them could not be held.
	SnapshotsOutrun uint64
	// SnapshotsResumed went on where they broke off. SnapshotFilesDamaged were
	// found so as they were sent, and written again.
	SnapshotsResumed, SnapshotFilesDamaged uint64

	FramesSent, BytesSent, Turns uint64
}

// Stats returns the state of the counters.
func (c *Core) Stats() Stats {
	s := Stats{Groups: len(c.order), Awake: len(c.clocks.ticking), Led: c.led, Stopped: len(c.stopped.groups), Counters: c.stats}
	s.Peers, s.Silent = c.nodes.Count()
	s.SendingSnapshots = c.transfers.sending
	for _, g := range c.order {
		behind, _ := g.log.Behind()
		s.HeldBytes += behind
	}
	if files := c.transfers.files; files != nil {
		s.KeptBytes = files.Kept()
	}
	return s
}

// Stats returns the counters as of the last tick. It does not block.
func (l *Loop) Stats() Stats {
	s := *l.published.Load()
	s.MessagesOverrun, s.FramesRefused = l.overrun.Load(), l.refused.Load()
	return s
}

// publish makes the counters visible to Stats.
func (l *Loop) publish() {
	s := l.core.Stats()
	l.published.Store(&s)
}
