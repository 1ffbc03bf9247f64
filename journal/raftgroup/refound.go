package raftgroup

import (
	"errors"
	"fmt"
	"io"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ErrRefounded: the replica that a group was to begin anew with, or a later one
// of its shard, has begun its life on this node already.
var ErrRefounded = errors.New("raftgroup: the replica has begun already")

// Founding is a group that begins anew with one replica and a given state.
type Founding struct {
	Shard sharding.ShardID
	// Replica is the only voter. Its id is higher than any that the shard had.
	Replica sharding.ReplicaID
	// Index and Term are those of the state; the term is above all that the
	// shard's replicas have seen.
	Index uint64
	Term  sharding.Term
	// State is the stream of the state, see journal/statefile.
	State io.Reader
}

// Refound begins a group anew on a stopped node: whatever replica of the shard
// there is ends its life, and the new one begins with the state. dir is the
// directory of received snapshots. It returns when that is durable; the
// records are those that removing, creating and installing write while a node
// runs. It can be repeated after it was interrupted, with the same founding,
// and then does what is left of it: until then the group may be without its
// state, so that the node must not start.
//
// The log was recovered as rec, which cannot be used afterwards.
func Refound(rec *Recovered, log Log, fsys disk.FS, dir string, f Founding) error {
	core, err := NewCore(rec, Options{})
	if err != nil {
		return fmt.Errorf("begin shard %d anew: %w", f.Shard, err)
	}
	log.SetCheckpoint(core.Checkpoint)
	o := offline{core: core, log: log}
	files := &snapshotFiles{fs: fsys, dir: dir}
	if err := files.clear(core.named()); err != nil {
		return err
	}
	digest, err := files.receive(f.State, statefile.Header{Shard: f.Shard, Index: f.Index, Term: f.Term}, f.Replica)
	if err != nil {
		return err
	}
	if err := o.refound(f, digest); err != nil {
		return fmt.Errorf("begin shard %d anew: %w", f.Shard, err)
	}
	return o.sync()
}

// named are the files of snapshots that the log names.
func (c *Core) named() (names []string) {
	for _, g := range c.order {
		if g.install.index != 0 {
			names = append(names, g.fileName())
		}
	}
	return names
}

// offline writes to the log of a node whose groups do not run.
type offline struct {
	core *Core
	log  Log
}

func (o *offline) sync() error {
	if _, err := o.log.Sync(); err != nil {
		return err
	}
	return o.log.SyncMark()
}

func (o *offline) refound(f Founding, digest statefile.Digest) error {
	g := o.core.groups[f.Shard]
	if g != nil && g.replica != uint64(f.Replica) {
		if uint64(f.Replica) <= g.replica {
			return ErrRefounded
		}
		if err := o.remove(ReplicaRef{f.Shard, sharding.ReplicaID(g.replica)}); err != nil {
			return err
		}
		g = nil
	}
	if g == nil {
		if err := o.create(GroupConfig{Shard: f.Shard, Replica: f.Replica, Voters: []sharding.ReplicaID{f.Replica}}); err != nil {
			return err
		}
		g = o.core.groups[f.Shard]
	}
	switch {
	case g.install.index != 0 && g.install.digest == digest && g.log.last() == f.Index:
		return nil // an earlier attempt came to its end
	case g.install.index != 0 || g.log.last() != 0:
		return ErrRefounded
	}
	return o.install(g, f, digest)
}

func (o *offline) remove(refs ...ReplicaRef) error {
	payload, present, err := o.core.RemoveRecord(refs)
	if err != nil || payload == nil {
		return err
	}
	if _, err := o.log.Append(KindRemove, payload); err != nil {
		return err
	}
	o.core.Removed(present)
	return nil
}

func (o *offline) create(config GroupConfig) error {
	payload, err := o.core.CreateRecord([]GroupConfig{config})
	if errors.Is(err, ErrReplicaRemoved) {
		return ErrRefounded
	}
	if err != nil {
		return err
	}
	if _, err := o.log.Append(KindCreate, payload); err != nil {
		return err
	}
	return o.core.Created([]GroupConfig{config})
}

func (o *offline) install(g *group, f Founding, digest statefile.Digest) error {
	alone := &pb.ConfState{Voters: []uint64{g.replica}, AutoLeave: new(false)}
	g.hard.term = uint64(f.Term)
	g.incoming = &incoming{digest: digest, SnapshotHeader: SnapshotHeader{
		Shard: f.Shard, To: f.Replica, Term: f.Term, Index: f.Index, IndexTerm: f.Term, members: membership{f.Index, alone},
	}}
	o.core.installs = append(o.core.installs, g)
	if _, err := o.log.Append(KindInstall, o.core.InstallRecord()); err != nil {
		return err
	}
	o.core.InstallAppended()
	return nil
}

// Discard ends the life of a stopped node's replica of a shard, durably; one
// that is gone already is passed over. The log was recovered as rec, which
// cannot be used afterwards.
func Discard(rec *Recovered, log Log, shard sharding.ShardID) (was sharding.ReplicaID, err error) {
	core, err := NewCore(rec, Options{})
	if err != nil {
		return 0, fmt.Errorf("remove the replica of shard %d: %w", shard, err)
	}
	g := core.groups[shard]
	if g == nil {
		return 0, nil
	}
	log.SetCheckpoint(core.Checkpoint)
	o := offline{core: core, log: log}
	was = sharding.ReplicaID(g.replica)
	if err := o.remove(ReplicaRef{shard, was}); err != nil {
		return 0, fmt.Errorf("remove the replica of shard %d: %w", shard, err)
	}
	return was, o.sync()
}
