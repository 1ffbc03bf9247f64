package raftgroup

import (
	"context"
	"errors"
	"io"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// Snapshots is the state machine's side of snapshots and removals;
// journal/eventlog implements it. Its methods are called from the loop's
// goroutine. A call between two calls of Apply takes effect between the entries
// of those calls.
type Snapshots interface {
	// StateIndex returns the index of the shard state that the machine could send
	// now, or 0 if it has none.
	StateIndex(shard sharding.ShardID) (index uint64, term sharding.Term)
	// Pin returns the state that the machine could send now. The state does not
	// change until it is released. Pin does no I/O.
	Pin(shard sharding.ShardID) (statefile.Pinned, error)
	// Install starts a generation of the shard from a snapshot. It replaces
	// everything that the machine has of the shard.
	Install(shard sharding.ShardID, generation uint32, s statefile.Install)
	// Drop ends the shard's generation; next is the number of the next
	// generation.
	Drop(shard sharding.ShardID, next uint32)
}

// SnapshotSender sends snapshots to other nodes.
type SnapshotSender interface {
	// SendSnapshot passes head, of less than 100 bytes, and stream to the node's
	// Loop.ReceiveSnapshot and returns its result. It blocks as long as the
	// transfer makes progress, and returns soon after the transfer stalls or ctx
	// ends.
	SendSnapshot(ctx context.Context, to sharding.NodeID, head []byte, stream io.Reader) (answer []byte, err error)
}

// errNoSnapshots: Options.Snapshots is not set.
var errNoSnapshots = errors.New("raftgroup: snapshots are not configured")

var (
	// ErrSnapshotIgnored: the replica cannot use the snapshot, because the
	// snapshot is of an earlier term or its group does not include the replica
	// yet. The leader learns of that and may send another snapshot.
	ErrSnapshotIgnored = errors.New("raftgroup: the replica ignored the snapshot")
	// errNoPart: the stream starts at an offset whose preceding bytes are
	// missing.
	errNoPart = errors.New("raftgroup: the bytes before the stream's offset are missing")
)
