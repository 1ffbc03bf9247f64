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
	// StateIndex returns how far the machine can give the shard's state away now,
	// 0 for not at all.
	StateIndex(shard sharding.ShardID) (index uint64, term sharding.Term)
	// Pin returns that state, which stays as it is until it is released. It
	// does no I/O.
	Pin(shard sharding.ShardID) (statefile.Pinned, error)
	// Install begins a generation of the shard with a snapshot, in the place of
	// all that the machine has of it.
	Install(shard sharding.ShardID, generation uint32, s statefile.Install)
	// Drop ends the shard's generation; the next one has the generation.
	Drop(shard sharding.ShardID, next uint32)
}

// SnapshotSender carries snapshots to other nodes.
type SnapshotSender interface {
	// SendSnapshot gives head, of less than 100 bytes, and stream to the node's
	// Loop.ReceiveSnapshot and returns what that returned. It blocks while bytes
	// move, and ends soon after they stop moving or ctx ends.
	SendSnapshot(ctx context.Context, to sharding.NodeID, head []byte, stream io.Reader) (answer []byte, err error)
}

// errNoSnapshots: Options.Snapshots is not set.
var errNoSnapshots = errors.New("raftgroup: no snapshots are configured")

// Errors of snapshots.
var (
	// ErrSnapshotIgnored: the replica has no use for the snapshot: it is of an
	// earlier term, or of a group that does not have the replica yet. The
	// leader finds out and may send another.
	ErrSnapshotIgnored = errors.New("raftgroup: snapshot ignored")
	// errNoPart: bytes of a snapshot came of which the first ones are not here.
	errNoPart = errors.New("raftgroup: the snapshot's first bytes are missing")
)
