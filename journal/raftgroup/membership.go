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

// RemoveRecord returns the payload of the log record that removes replicas,
// and those that there are to remove; the groups are gone after Removed. A
// replica that was removed before is passed over; the payload is nil if none
// is left.
func (c *Core) RemoveRecord(refs []ReplicaRef) (payload []byte, present []ReplicaRef, err error) {
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

// Removed ends the groups of a record that was synced. What was under way in
// them is reported as that of a stopped loop is: a proposal that raft had has
// an unknown outcome.
func (c *Core) Removed(refs []ReplicaRef) *Turn {
	t := &Turn{}
	for _, ref := range refs {
		g := c.groups[ref.Shard]
		c.former[ref.Shard] = wire.FormerReplica{Replica: ref.Replica, Generation: g.generation}
		c.remove(g)
		for _, p := range g.proposals {
			t.Dropped = append(t.Dropped, Dropped{g.shard, p.fence, p.number, ErrUnknownShard})
		}
		g.proposals = nil
		for _, token := range g.reads.Take() {
			t.Reads = append(t.Reads, ReadResult{Shard: g.shard, Token: token, Err: ErrUnknownShard})
		}
		if g.leader || g.lead != 0 {
			t.Leaders = append(t.Leaders, LeaderChange{g.shard, sharding.Term(g.term), 0, false})
		}
		if g.toldQuorum {
			t.Quorums = append(t.Quorums, QuorumChange{g.shard, false})
		}
		c.transfers.forget(g)
	}
	return t
}

// Remove removes replicas from this node, all of them, durably, or none, and
// has the state machine drop their shards. logged says that the error is the
// log's.
func (d *Driver) Remove(refs []ReplicaRef) (err error, logged bool) {
	if d.opts.Snapshots == nil {
		return fmt.Errorf("remove replicas: %w", errNoSnapshots), false
	}
	payload, present, err := d.core.RemoveRecord(refs)
	if err != nil || payload == nil {
		return err, false
	}
	if _, err := d.opts.Log.Append(wire.KindRemove, payload); err != nil {
		return err, true
	}
	if _, err := d.opts.Log.Sync(); err != nil {
		return err, true
	}
	d.report(d.core.Removed(present))
	for _, ref := range present {
		d.opts.Snapshots.Drop(ref.Shard, d.core.former[ref.Shard].Generation+1)
	}
	d.sweep()
	return nil, false
}

// RemoveGroups removes replicas from this node and returns when that is
// durable. All of them are removed or none; those that were removed before
// count as removed. Messages to them are dropped from then on, none of them
// can be created again, and the state machine deletes what it holds of their
// shards in its own time. A later CreateGroups of a shard under a higher
// replica id begins with nothing.
func (l *Loop) RemoveGroups(refs []ReplicaRef) error {
	if len(refs) == 0 {
		return nil
	}
	return l.call(func() error {
		err, logged := l.driver.Remove(refs)
		if logged {
			l.err = err // the loop ends
		}
		return err
	})
}

// leave has a leader leave a joint membership that it did not leave by itself.
// Raft proposes that when the membership is applied, and drops it while the
// leader hands over; if nobody takes over, it tries again with the next entry,
// which may never come. A replica that is to go would be a voter until then.
func (g *group) leave() {
	if !g.leader || !g.joint() || !g.conf.State.GetAutoLeave() || g.applied != g.log.Last() || g.hands() || g.node.HasReady() {
		return
	}
	// No change at all, as raft proposes it. What is dropped is proposed again.
	_ = g.node.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica), Entries: []*pb.Entry{{Type: pb.EntryConfChangeV2.Enum()}}})
}
