package raftgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/inbox"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Log is the write-ahead log as the loop uses it; *wal.Log satisfies it. It is
// called from one goroutine at a time.
type Log interface {
	// Append buffers a record made of the parts of payload and returns where
	// it will be. It calls the checkpoint function first if the record opens
	// a new segment.
	Append(kind byte, payload ...[]byte) (wal.Position, error)
	// Sync makes everything appended durable.
	Sync() (wal.Position, error)
	// SetCheckpoint sets the function that describes the state after all
	// records appended so far.
	SetCheckpoint(fn func(dst []byte) []byte)
	// Release gives back the segments that lie wholly before the position.
	Release(before wal.Position) (freed int, err error)
	// Tail is the position of the next record.
	Tail() wal.Position
	// SyncMark syncs the durable mark of a log that is idle.
	SyncMark() error
}

// StateMachine takes the committed entries; journal/eventlog implements it.
type StateMachine interface {
	// Apply takes committed entries in order per shard, from the loop's
	// goroutine. The slice and the data become the machine's; the data is
	// never modified.
	Apply(shard sharding.ShardID, entries []journal.Committed)
	// Backlog is the number of bytes given to Apply and not in the store. It is
	// called from any goroutine.
	Backlog() int64
	// Durable fills dst with the highest raft index of each shard whose
	// effects survive a power cut as of the returned watermark.
	Durable(dst map[sharding.ShardID]uint64) (watermark uint64)
}

// Sink learns what becomes of leadership, proposals and reads. It is called
// from the loop's goroutine and must not block.
type Sink interface {
	// LeaderChanged reports a new term, a new leader (0: none known) or the
	// start or the end of this replica's leadership. When it ends, what was
	// proposed in it and not applied yet has an unknown outcome.
	LeaderChanged(shard sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool)
	// QuorumChanged reports whether the nodes this replica hears, its own
	// included, are a quorum of the shard's voters; of both halves while its
	// membership is joint. It is called once for each replica that starts, and
	// then at changes. While it is false nothing can commit or be confirmed.
	QuorumChanged(shard sharding.ShardID, ok bool)
	// ProposalDropped reports a proposal that will never commit.
	ProposalDropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, err error)
	// ReadConfirmed reports that this replica led the shard after the read was
	// asked for: a state that has applied index answers it.
	ReadConfirmed(shard sharding.ShardID, token uint64, index uint64)
	// ReadFailed reports a read that was not confirmed.
	ReadFailed(shard sharding.ShardID, token uint64, err error)
}

// Transport carries frames between nodes, each at most once and in any order.
type Transport interface {
	// Send takes a frame for a node; it must not block and may drop. The frame
	// becomes the transport's.
	Send(to sharding.NodeID, frame []byte)
}

// Ticker is the beat of the loop's clock.
type Ticker interface {
	C() <-chan time.Time
	Stop()
}

// Options configure a Core and its Loop. Zero fields take the default.
type Options struct {
	// Self is this node; it is only reported in errors.
	Self sharding.NodeID
	// Log, Machine and Sink are required.
	Log     Log
	Machine StateMachine
	Sink    Sink
	// Probation lets no group vote, campaign or answer before Release: it is not
	// known yet whether the node still has all that its replicas promised.
	Probation bool
	// Withheld are shards whose groups, as recovered, do nothing of that before
	// ReleaseShard.
	Withheld []sharding.ShardID
	// Transport and Locate are required for groups with other members. Locate
	// names the node of a replica, always the same one; it is called while the
	// loop starts and then from its goroutine. What it does not know is learned from where the
	// replica's messages come from; messages to other replicas are dropped.
	Transport Transport
	Locate    func(shard sharding.ShardID, replica sharding.ReplicaID) (sharding.NodeID, bool)
	// Strange says that a replica is certainly none of the shard: the metadata is
	// as new as its id and does not place it. What such a one sends is refused,
	// unless the group's own members have it. Nil: nobody is. It is called from
	// the loop's goroutine.
	Strange func(shard sharding.ShardID, replica sharding.ReplicaID) bool
	// Failed is told, from the loop's goroutine, of a group in which raft
	// panicked; the group has stopped. Nil: the panic goes on.
	Failed func(shard sharding.ShardID, err error)
	// Snapshots is the state machine's side of snapshots and removals. Without
	// it followers behind the cut wait, and no replica can be removed.
	Snapshots Snapshots
	// SnapshotFS and SnapshotDir are where received snapshots lie until the
	// state machine holds them durably; the directory is the loop's alone.
	// They are set with Snapshots.
	SnapshotFS  disk.FS
	SnapshotDir string
	// Sender carries snapshots to other nodes, at most MaxSnapshotsOut at a
	// time (default 8) while MaxSnapshotsQueued wait (default 64), each for as
	// long as it gets on. At most MaxSnapshotsIn are received
	// at a time (default 8), others wait.
	Sender             SnapshotSender
	MaxSnapshotsOut    int
	MaxSnapshotsQueued int
	MaxSnapshotsIn     int
	// CatchUpRoom is how many bytes may be kept in SnapshotDir that can be done
	// without: snapshots that are sent, the log behind them, and what has come
	// of those that broke off; default a quarter of what is free there. A
	// snapshot for whose log there is no room begins anew, one for whose file
	// there is none is sent as it is read. It is called from any goroutine.
	CatchUpRoom func() int64
	// Applied is the last index of a shard that the machine holds as it was
	// opened, as of the recovered watermark; nil: nothing beyond the log's cut.
	Applied func(shard sharding.ShardID) uint64
	// Fatal is called once, from the loop's goroutine, when the log failed; the
	// process is expected to end. Nothing is acknowledged afterwards.
	Fatal func(err error)

	// Tick is the unit of the two following; default 100 ms.
	Tick time.Duration
	// ElectionTicks without a leader's message start an election; default 10,
	// with a random share of as much again.
	ElectionTicks int
	// HeartbeatTicks lie between two heartbeats of a leader; default 1.
	HeartbeatTicks int
	// SilenceTicks is how long a node that was never heard counts as heard,
	// from when it became known; default 7. The caller who says PeerSilent
	// waits as long.
	SilenceTicks int
	// MaxCampaigns bounds the groups that campaign in a tick because their
	// leader's node went silent; default 64.
	MaxCampaigns int
	// QuiesceTicks without work let a group sleep; default 5.
	QuiesceTicks int
	// NewTicker makes the beat; default time.NewTicker.
	NewTicker func(time.Duration) Ticker
	// Now is the clock by which the loop sees how long others take; default
	// time.Now.
	Now func() time.Time
	// CutTicks lie between two attempts to cut the log; default 10.
	CutTicks int

	// MaxEntryBytes bounds the data of a proposal; default 1 MiB.
	MaxEntryBytes int
	// MaxQueueBytes and MaxQueueCount bound what waits for the loop; default
	// 16 MiB and 65,536 (of proposals, of reads and of messages each). Beyond
	// it proposals and reads get ErrBusy and messages are lost.
	MaxQueueBytes int64
	MaxQueueCount int
	// MaxBacklogBytes of the machine make proposals fail with ErrBusy, twice
	// as much makes followers lose appends; default 64 MiB.
	MaxBacklogBytes int64
	// MaxUncommittedBytes of a group are not yet committed; proposals beyond
	// are dropped; default 16 MiB.
	MaxUncommittedBytes uint64
	// MaxMessageBytes of entries are sent in one append; default 512 KiB.
	MaxMessageBytes uint64
	// MaxInflightMessages and MaxInflightBytes of appends are unanswered by one
	// follower; default 128 and 8 MiB.
	MaxInflightMessages int
	MaxInflightBytes    uint64
	// MaxApplyBytes of entries are given to the machine at a time and group;
	// default 4 MiB.
	MaxApplyBytes uint64
	// MaxReads bounds the reads of a group that wait for confirmation; default
	// 16,384. Beyond it they fail with ErrBusy.
	MaxReads int
	// MaxRecordBytes is the length at which a turn begins another log record;
	// default 4 MiB. A single entry larger than it still is one record.
	MaxRecordBytes int
	// MaxFrameBytes is the length at which messages for a node go into another
	// frame; default 2 MiB.
	MaxFrameBytes int
	// RetainBytes of entries behind the durable index are kept by a group with
	// other members for followers that are behind, but all groups together keep
	// no more than RetainTotalBytes of memory in entries; a follower that is
	// further behind gets a snapshot. Default 4 MiB and 64 MiB.
	RetainBytes      int64
	RetainTotalBytes int64
	// MaxPinnedSegments is how far behind the log's end a group's oldest entry
	// may lie before its entries are written again at the end; default 8.
	MaxPinnedSegments uint64

	// Logger gets what an operator wants to know; default none.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Tick = or(o.Tick, 100*time.Millisecond)
	o.ElectionTicks = or(o.ElectionTicks, 10)
	o.HeartbeatTicks = or(o.HeartbeatTicks, 1)
	o.SilenceTicks = or(o.SilenceTicks, 7)
	o.QuiesceTicks = or(o.QuiesceTicks, 5)
	o.MaxCampaigns = or(o.MaxCampaigns, 64)
	o.CutTicks = or(o.CutTicks, 10)
	o.MaxEntryBytes = or(o.MaxEntryBytes, 1<<20)
	o.MaxQueueBytes = or(o.MaxQueueBytes, 16<<20)
	o.MaxQueueCount = or(o.MaxQueueCount, 65536)
	o.MaxBacklogBytes = or(o.MaxBacklogBytes, 64<<20)
	o.MaxUncommittedBytes = or(o.MaxUncommittedBytes, 16<<20)
	o.MaxMessageBytes = or(o.MaxMessageBytes, 512<<10)
	o.MaxInflightMessages = or(o.MaxInflightMessages, 128)
	o.MaxInflightBytes = or(o.MaxInflightBytes, 8<<20)
	o.MaxApplyBytes = or(o.MaxApplyBytes, 4<<20)
	o.MaxReads = or(o.MaxReads, 16384)
	o.MaxRecordBytes = or(o.MaxRecordBytes, 4<<20)
	o.MaxFrameBytes = or(o.MaxFrameBytes, 2<<20)
	o.RetainBytes = or(o.RetainBytes, 4<<20)
	o.RetainTotalBytes = or(o.RetainTotalBytes, 64<<20)
	o.MaxPinnedSegments = or(o.MaxPinnedSegments, 8)
	o.MaxSnapshotsOut = or(o.MaxSnapshotsOut, 8)
	o.MaxSnapshotsQueued = or(o.MaxSnapshotsQueued, 64)
	o.MaxSnapshotsIn = or(o.MaxSnapshotsIn, 8)
	if o.NewTicker == nil {
		o.NewTicker = func(d time.Duration) Ticker { return wallTicker{time.NewTicker(d)} }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fatal == nil {
		o.Fatal = func(error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

type wallTicker struct{ *time.Ticker }

func (t wallTicker) C() <-chan time.Time { return t.Ticker.C }

// Validate returns all that is wrong with the options of a Loop.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.Log == nil || o.Machine == nil || o.Sink == nil {
		errs = append(errs, errors.New("log, machine and sink are required"))
	}
	if (o.Transport == nil) != (o.Locate == nil) {
		errs = append(errs, errors.New("transport and locate are set together"))
	}
	if o.Snapshots != nil && (o.SnapshotFS == nil || o.SnapshotDir == "") {
		errs = append(errs, errors.New("snapshots need a file system and a directory"))
	}
	if o.MaxSnapshotsOut < 1 || o.MaxSnapshotsQueued < 0 || o.MaxSnapshotsIn < 1 {
		errs = append(errs, errors.New("bounds of snapshots must be positive"))
	}
	if o.HeartbeatTicks < 1 || o.ElectionTicks <= o.HeartbeatTicks {
		errs = append(errs, fmt.Errorf("election ticks %d must be above heartbeat ticks %d, at least 1", o.ElectionTicks, o.HeartbeatTicks))
	}
	if o.SilenceTicks < 1 || o.MaxCampaigns < 1 {
		errs = append(errs, fmt.Errorf("silence ticks %d and max campaigns %d must be at least 1", o.SilenceTicks, o.MaxCampaigns))
	}
	if o.MaxInflightBytes < o.MaxMessageBytes {
		errs = append(errs, fmt.Errorf("max inflight bytes %d are below max message bytes %d", o.MaxInflightBytes, o.MaxMessageBytes))
	}
	if o.MaxEntryBytes < 1 || o.MaxEntryBytes > wire.MaxEntryBytes {
		errs = append(errs, fmt.Errorf("max entry bytes %d: want 1 to %d", o.MaxEntryBytes, wire.MaxEntryBytes))
	}
	return errors.Join(errs...)
}

// GroupConfig describes a replica to be created on this node.
type GroupConfig struct {
	Shard sharding.ShardID
	// Replica is this node's replica; it is never used for another.
	Replica sharding.ReplicaID
	// Voters and Learners are the group's first members, the same on every
	// replica that is ever made of it, those that join later included: they
	// find the changes since in the log.
	Voters, Learners []sharding.ReplicaID
}

// Errors of the package.
var (
	// ErrBusy: a bound is reached and the call had no effect. Retry later.
	ErrBusy = inbox.ErrBusy
	// ErrStopped: the loop was closed or its log failed. What was accepted
	// before has an unknown outcome.
	ErrStopped = inbox.ErrStopped
	// ErrUnknownShard: this node holds no replica of the shard.
	ErrUnknownShard = errors.New("raftgroup: no replica of the shard on this node")
	// ErrGroupExists: this node already holds a replica of the shard.
	ErrGroupExists = errors.New("raftgroup: a replica of the shard exists")
	// ErrReplicaRemoved: the replica, or a later one of its shard, was removed
	// from this node. It can never be created again.
	ErrReplicaRemoved = errors.New("raftgroup: the replica was removed from this node")
	// ErrTooLarge: a proposal above MaxEntryBytes. It will never be taken.
	ErrTooLarge = errors.New("raftgroup: proposal too large")
	// ErrFenced: the proposal was made for another term than the group's. It
	// will never commit.
	ErrFenced = errors.New("raftgroup: proposal of another term")
	// ErrNotLeader: this replica does not lead the shard. A proposal that
	// fails with it will never commit.
	ErrNotLeader = errors.New("raftgroup: not the leader")
	// ErrDropped: the group takes no proposals at the moment: leadership is
	// being transferred or too much is uncommitted. The proposal will never
	// commit; another one may.
	ErrDropped = errors.New("raftgroup: proposal dropped")
)
