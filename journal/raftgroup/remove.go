package raftgroup

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// KindRemove is the kind of the records that RemoveRecord returns.
const KindRemove byte = kindRemove

// ReplicaRef names a replica of this node.
type ReplicaRef struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
}

// formerLife is the last replica of a shard that was removed from this node.
// It is kept for ever: replica ids of a shard rise on a node, so one number
// says of every removed replica that it must not come back.
type formerLife struct {
	replica    sharding.ReplicaID
	generation uint32
}

type formerLives map[sharding.ShardID]formerLife

func appendFormer(b []byte, lives formerLives) []byte {
	b = le.AppendUint32(b, uint32(len(lives)))
	for _, shard := range slices.Sorted(maps.Keys(lives)) {
		f := lives[shard]
		b = le.AppendUint32(b, uint32(shard))
		b = le.AppendUint64(b, uint64(f.replica))
		b = le.AppendUint32(b, f.generation)
	}
	return b
}

func (r *recovery) readFormer(d *reader) {
	for n := d.u32(); n > 0 && !d.bad; n-- {
		shard, f := sharding.ShardID(d.u32()), formerLife{sharding.ReplicaID(d.u64()), d.u32()}
		if f.replica == 0 {
			d.bad = true
		}
		if !d.bad {
			r.former[shard] = f
		}
	}
}

func (r *recovery) remove(d *reader) error {
	for n := d.u32(); n > 0 && !d.bad; n-- {
		shard, replica := d.u32(), d.u64()
		if d.bad {
			break
		}
		g, err := r.at(shard, replica)
		if err != nil {
			return err
		}
		r.former[g.g.shard] = formerLife{sharding.ReplicaID(replica), g.g.generation}
		delete(r.groups, shard)
	}
	return d.done()
}

// Lives says of every shard that has or had a replica here which of its lives
// is the present one: what the state machine has to know before it opens its
// store. Snapshots that it may have to read are in dir.
func (r *Recovered) Lives(fsys disk.FS, dir string) []statefile.Life {
	files := &snapshotFiles{fs: fsys, dir: dir}
	var out []statefile.Life
	for _, g := range r.groups {
		out = append(out, statefile.Life{Shard: g.shard, Generation: g.generation, Install: files.pendingInstall(g)})
	}
	for _, shard := range slices.Sorted(maps.Keys(r.former)) {
		if !slices.ContainsFunc(r.groups, func(g *group) bool { return g.shard == shard }) {
			out = append(out, statefile.Life{Shard: shard, Generation: r.former[shard].generation + 1, Gone: true})
		}
	}
	return out
}

// RemoveRecord returns the payload of the log record that removes replicas,
// and those that there are to remove; the groups are gone after Removed. A
// replica that was removed before is passed over; the payload is nil if none
// is left.
func (c *Core) RemoveRecord(refs []ReplicaRef) (payload []byte, present []ReplicaRef, err error) {
	b := append(c.buf[:0], payloadVersion)
	b = le.AppendUint32(b, 0)
	for i, ref := range refs {
		g := c.groups[ref.Shard]
		switch {
		case slices.Contains(refs[:i], ref) || ref.Replica != 0 && ref.Replica <= c.former[ref.Shard].replica:
			continue
		case g == nil || g.replica != uint64(ref.Replica):
			return nil, nil, fmt.Errorf("remove replica %d of shard %d: %w", ref.Replica, ref.Shard, ErrUnknownShard)
		}
		b = le.AppendUint32(b, uint32(ref.Shard))
		b = le.AppendUint64(b, uint64(ref.Replica))
		present = append(present, ref)
	}
	c.buf = b
	le.PutUint32(b[1:], uint32(len(present)))
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
		c.former[ref.Shard] = formerLife{ref.Replica, g.generation}
		c.remove(g)
		for _, p := range g.proposals {
			t.Dropped = append(t.Dropped, Dropped{g.shard, p.fence, p.number, ErrUnknownShard})
		}
		g.proposals = nil
		for _, token := range g.takeReads() {
			t.Reads = append(t.Reads, ReadResult{Shard: g.shard, Token: token, Err: ErrUnknownShard})
		}
		if g.leader || g.lead != 0 {
			t.Leaders = append(t.Leaders, LeaderChange{g.shard, sharding.Term(g.term), 0, false})
		}
		if g.toldQuorum {
			t.Quorums = append(t.Quorums, QuorumChange{g.shard, false})
		}
		c.forgetSnapshots(g)
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
	if _, err := d.opts.Log.Append(KindRemove, payload); err != nil {
		return err, true
	}
	if _, err := d.opts.Log.Sync(); err != nil {
		return err, true
	}
	d.report(d.core.Removed(present))
	for _, ref := range present {
		d.opts.Snapshots.Drop(ref.Shard, d.core.former[ref.Shard].generation+1)
	}
	d.removeFiles()
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
