package raftgroup

import (
	"context"
	"errors"
	"io"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// Snapshots is the state machine's side of snapshots and removals;
// journal/eventlog implements it. It is called from the loop's goroutine, and
// between two calls of Apply takes effect between their entries.
type Snapshots interface {
	// Held returns how far the machine can give the shard's state away now, 0
	// for not at all.
	Held(shard sharding.ShardID) (index uint64, term sharding.Term)
	// Pin returns that state, which stays as it is until it is released. It
	// does no I/O.
	Pin(shard sharding.ShardID) (statefile.Pinned, error)
	// Install begins a life of the shard with a snapshot, in the place of all
	// that the machine has of it.
	Install(shard sharding.ShardID, generation uint32, s statefile.Install)
	// Drop ends the shard's life; the next one has the generation.
	Drop(shard sharding.ShardID, next uint32)
}

// SnapshotSender carries snapshots to other nodes.
type SnapshotSender interface {
	// SendSnapshot gives the stream that open returns to the node's
	// Loop.ReceiveSnapshot and returns what that returned: nil when the
	// snapshot is durable there. open is called at most once and the stream
	// closed by the sender. It blocks, and ends soon after ctx does.
	SendSnapshot(ctx context.Context, to sharding.NodeID, h SnapshotHeader, open func() (io.ReadCloser, error)) error
}

// errNoSnapshots: Options.Snapshots is not set.
var errNoSnapshots = errors.New("raftgroup: no snapshots are configured")

// Errors of snapshots.
var (
	// ErrSnapshotIgnored: the replica has no use for the snapshot: it is of an
	// earlier term, or of a group that does not have the replica yet. The
	// leader finds out and may send another.
	ErrSnapshotIgnored = errors.New("raftgroup: snapshot ignored")
)

// installImage is what the log keeps of a snapshot that a life began with.
type installImage struct {
	index, term uint64
	digest      statefile.Digest
}

func appendInstallImage(b []byte, i installImage) []byte {
	b = le.AppendUint64(b, i.index)
	b = le.AppendUint64(b, i.term)
	return append(b, i.digest[:]...)
}

func (r *reader) installImage() (i installImage) {
	i.index, i.term = r.u64(), r.u64()
	copy(i.digest[:], r.take(len(i.digest)))
	if i.index == 0 || i.term == 0 {
		r.bad = true
	}
	return i
}
