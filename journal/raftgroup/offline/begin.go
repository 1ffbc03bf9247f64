package offline

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
)

// ErrReplicaExists: the replica that a group was to be restarted with, or a later
// replica of its shard, already exists or existed on this node.
var ErrReplicaExists = errors.New("raftgroup: the replica already exists or existed")

// Restart describes a group that restarts with one replica and a given state.
type Restart struct {
	Shard sharding.ShardID
	// Replica is the only voter. Its id is higher than any earlier id in the
	// shard.
	Replica sharding.ReplicaID
	// Index and Term are the index and term of the state. The term is above every
	// term that the shard's replicas have seen.
	Index uint64
	Term  sharding.Term
	// State is the stream of the state, see journal/statefile.
	State io.Reader
}

// RestartGroup restarts a group on a stopped node: it removes any replica of
// the shard and creates the new one with the given state. dir is the directory
// of received snapshots. RestartGroup returns once everything is durable.
// RestartGroup writes the records of a removal, a creation and an install, as a
// running node would. If it is interrupted, it can be repeated with the same
// arguments, and then completes the remaining steps. Until then the group may
// lack its state, so the node must not start.
//
// The log was recovered as rec, which must not be used afterwards.
func RestartGroup(rec *recovery.Recovered, log Log, fsys disk.FS, dir string, f Restart) error {
	files := snapdir.New(fsys, dir, nil, slog.New(slog.DiscardHandler))
	var named []string
	for i := range rec.Groups {
		if name := rec.Groups[i].File(); name != "" {
			named = append(named, name)
		}
	}
	if err := files.Clear(named); err != nil {
		return err
	}
	head := statefile.Header{Shard: f.Shard, Index: f.Index, Term: f.Term}
	digest, err := files.Receive(f.State, head, f.Replica, files.NewPart(f.Shard, f.Replica, statefile.Digest{}), 0)
	if err != nil {
		return err
	}
	w := open(rec, log)
	if err := w.restart(f, digest); err != nil {
		return fmt.Errorf("restart shard %d from an imported state: %w", f.Shard, err)
	}
	return w.sync()
}

func (w *writer) restart(f Restart, digest statefile.Digest) error {
	if f.Replica == 0 || raft.IsLocalMsgTarget(uint64(f.Replica)) {
		return fmt.Errorf("replica id %d is reserved", f.Replica)
	}
	r := w.rec.Replica(f.Shard)
	if r != nil && r.Replica != f.Replica {
		if f.Replica <= r.Replica {
			return ErrReplicaExists
		}
		if err := w.remove(r); err != nil {
			return err
		}
		r = nil
	}
	if r == nil {
		if f.Replica <= w.rec.Former[f.Shard].Replica {
			return ErrReplicaExists
		}
		var err error
		if r, err = w.create(f.Shard, f.Replica); err != nil {
			return err
		}
	}
	switch has := r.Image.Install; {
	case has.Index != 0 && has.Digest == digest && r.Log.Last() == f.Index:
		return nil // an earlier attempt has completed
	case has.Index != 0 || r.Log.Last() != 0:
		return ErrReplicaExists
	}
	return w.install(r, wire.GroupImage{
		Shard: uint32(f.Shard), Replica: uint64(f.Replica), Generation: r.Image.Generation + 1,
		Hard:           wire.HardState{Term: uint64(f.Term), Vote: r.Hard.Vote, Commit: f.Index},
		TruncatedIndex: f.Index, TruncatedTerm: uint64(f.Term),
		Conf:    wire.Membership{Index: f.Index, State: wire.NewMembership([]sharding.ReplicaID{f.Replica}, nil).State},
		Install: wire.InstallImage{Index: f.Index, Term: uint64(f.Term), Digest: digest},
	})
}

// RemoveReplica durably removes a stopped node's replica of a shard. It does nothing
// if there is none. The log was recovered as rec, which must not be used
// afterwards.
func RemoveReplica(rec *recovery.Recovered, log Log, shard sharding.ShardID) (was sharding.ReplicaID, err error) {
	r := rec.Replica(shard)
	if r == nil {
		return 0, nil
	}
	was = r.Replica
	w := open(rec, log)
	if err := w.remove(r); err != nil {
		return 0, fmt.Errorf("remove the replica of shard %d: %w", shard, err)
	}
	return was, w.sync()
}
