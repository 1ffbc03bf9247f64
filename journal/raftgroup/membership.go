package raftgroup

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ReplicaRef names a replica of this node.
type ReplicaRef struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
}

// removeRecord returns the payload of the log record that removes replicas, and
// the replicas that are present. The groups are gone once finishRemove is
// called. Replicas that were removed before are skipped; the payload is nil if
// no replica is left to remove.
func (c *Core) removeRecord(refs []ReplicaRef) (payload []byte, present []ReplicaRef, err error) {
	b := wire.BeginList(c.buf[:0], 0)
	for i, ref := range refs {
		g := c.groups[ref.Shard]
		switch {
		case slices.Contains(refs[:i], ref) || ref.Replica != 0 && ref.Replica <= c.former[ref.Shard].Replica:
			continue
		case g == nil || g.replica != uint64(ref.Replica):
			return nil, nil, fmt.Errorf("remove replica %d of shard %d: %w", ref.Replica, ref.Shard, ErrUnknownShard)
		}
		b = wire.AppendReplica(b, ref.Shard, ref.Replica)
		present = append(present, ref)
	}
	c.buf = b
	binary.LittleEndian.PutUint32(b[1:], uint32(len(present)))
	if len(present) == 0 {
		return nil, nil, nil
	}
	return b, present, nil
}

// finishRemove ends the groups of a record that was synced. Their pending
// requests are reported as in a stopped loop: a proposal that raft already had
// has an unknown outcome.
func (c *Core) finishRemove(refs []ReplicaRef) *turn {
	t := &turn{}
	for _, ref := range refs {
		g := c.groups[ref.Shard]
		c.former[ref.Shard] = wire.FormerReplica{Replica: ref.Replica, Generation: g.generation}
		c.remove(g)
		for _, p := range g.proposals {
			t.Dropped = append(t.Dropped, droppedProposal{g.shard, p.fence, p.number, ErrUnknownShard})
		}
		g.proposals = nil
		for _, token := range g.reads.TakeAll() {
			t.Reads = append(t.Reads, readResult{Shard: g.shard, Token: token, Err: ErrUnknownShard})
		}
		if g.leader || g.lead != 0 {
			t.Leaders = append(t.Leaders, leaderChange{g.shard, sharding.Term(g.term), 0, false})
		}
		if g.reportedQuorum {
			t.Quorums = append(t.Quorums, quorumChange{g.shard, false})
		}
		c.transfers.discardAll(g)
	}
	return t
}

// Remove removes replicas from this node, durably and either all or none, and
// makes the state machine drop their shards. logged reports that the error
// comes from the log.
func (d *Driver) Remove(refs []ReplicaRef) (err error, logged bool) {
	if d.opts.Snapshots == nil {
		return fmt.Errorf("remove replicas: %w", errNoSnapshots), false
	}
	payload, present, err := d.core.removeRecord(refs)
	if err != nil || payload == nil {
		return err, false
	}
	if _, err := d.opts.Log.Append(wire.KindRemove, payload); err != nil {
		return err, true
	}
	if _, err := d.opts.Log.Sync(); err != nil {
		return err, true
	}
	d.report(d.core.finishRemove(present))
	for _, ref := range present {
		d.opts.Snapshots.Drop(ref.Shard, d.core.former[ref.Shard].Generation+1)
	}
	d.sweep()
	return nil, false
}

// RemoveGroups removes replicas from this node and returns when the removal is
// durable. Either all of them are removed or none; replicas that were removed
// before count as removed. Messages to them are dropped from then on, none of
// them can be created again, and the state machine deletes its data of their
// shards in the background. If a later CreateGroups creates a replica of the
// shard with a higher id, that replica starts empty.
func (l *Loop) RemoveGroups(refs []ReplicaRef) error {
	if len(refs) == 0 {
		return nil
	}
	return l.call(func() error {
		err, logged := l.driver.Remove(refs)
		if logged {
			l.err = err // the loop ends with this error
		}
		return err
	})
}

// leaveJoint makes a leader leave a joint membership if raft's auto-leave
// failed to. Raft proposes to leave when it applies the joint membership, but
// drops that proposal during a leadership transfer. If the transfer fails, raft
// tries again only with the next entry, which may never come, and a removed
// replica would remain a voter until then.
func (g *group) leaveJoint() {
	if !g.leader || !g.isJoint() || !g.conf.State.GetAutoLeave() || g.applied != g.log.Last() || g.isTransferring() || g.node().HasReady() {
		return
	}
	// An empty change leaves the joint membership, as in raft's own proposal.
	// If it is dropped, the next tick proposes it again.
	_ = g.node().Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica), Entries: []*pb.Entry{{Type: pb.EntryConfChangeV2.Enum()}}})
}
