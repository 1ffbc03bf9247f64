package raftgroup

import (
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
	// Commit, Applied, First and Last are raft indexes; First-1 is the cut.
	Commit, Applied, First, Last uint64
	// Bytes is what the entries in memory take.
	Bytes int64
	// Members, as the log has them for good; while a joint change is under way
	// Outgoing too.
	Voters, Learners, Outgoing []sharding.ReplicaID
	// Match is how far each member's log is known to agree, on the leader.
	Match map[sharding.ReplicaID]uint64
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
	conf := g.written.conf.state
	s := Status{
		Shard: g.shard, Replica: sharding.ReplicaID(g.replica), Term: sharding.Term(g.term),
		Leader: sharding.ReplicaID(g.lead), Self: g.leader, Quorum: g.quorum, Quiescent: g.asleep,
		Commit: st.GetCommit(), Applied: g.applied, First: g.log.cut + 1, Last: g.log.last(), Bytes: g.log.bytes,
		Voters: replicas(conf.GetVoters()), Learners: replicas(conf.GetLearners()), Outgoing: replicas(conf.GetVotersOutgoing()),
	}
	if st.RaftState == raft.StateLeader {
		s.Match = make(map[sharding.ReplicaID]uint64, len(s.Voters)+len(s.Learners)+len(s.Outgoing))
		g.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			s.Match[sharding.ReplicaID(id)] = p.Match
		})
	}
	return s
}

// Leader returns who leads the shard as last reported, 0 if nobody is known.
func (c *Core) Leader(shard sharding.ShardID) (sharding.ReplicaID, sharding.Term) {
	g := c.groups[shard]
	if g == nil {
		return 0, 0
	}
	return sharding.ReplicaID(g.lead), sharding.Term(g.term)
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
	c.wake(g)
	err = g.node.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica),
		Entries: []*pb.Entry{{Type: pb.EntryConfChangeV2.Enum(), Data: data}}})
	c.touch(g)
	if err == raft.ErrProposalDropped {
		return ErrDropped
	}
	return err
}

// RestRecord returns the payload of a turn record with everything that is
// known and not written because nothing asked for it, nil if there is nothing.
// Only a loop that ends needs it. Entries of a turn that was begun are not in
// it.
func (c *Core) RestRecord() []byte {
	b := append(c.buf[:0], payloadVersion)
	for _, g := range c.order {
		if !g.hardUnwritten && !g.confUnwritten {
			continue
		}
		s := g.section(false)
		if s.hard != nil {
			s.hard.commit = min(s.hard.commit, g.log.last())
		}
		b = appendSection(b, &s)
	}
	c.buf = b
	if len(b) == 1 {
		return nil
	}
	return b
}
