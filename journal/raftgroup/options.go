package raftgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Log is the write-ahead log as the loop uses it; *wal.Log implements it. Log
// is called from one goroutine at a time.
type Log interface {
	// Append buffers a record made of the parts of payload and returns its
	// position. If the record opens a new segment, Append calls the checkpoint
	// function first.
	Append(kind byte, payload ...[]byte) (wal.Position, error)
	// Sync makes everything appended durable.
	Sync() (wal.Position, error)
	// SetCheckpoint sets the function that describes the state after all
	// records appended so far.
	SetCheckpoint(fn func(dst []byte) []byte)
	// Release frees the segments that lie entirely before the position.
	Release(before wal.Position) (freed int, err error)
	// Tail is the position of the next record.
	Tail() wal.Position
	// SyncMark syncs the durable mark of a log that is idle.
	SyncMark() error
}

// StateMachine applies committed entries; journal/eventlog implements it.
type StateMachine interface {
	// Apply receives committed entries in order per shard, on the loop's
	// goroutine. The machine owns the slice and the data; nothing modifies the
	// data afterwards.
	Apply(shard sharding.ShardID, entries []journal.Committed)
	// Backlog is the number of bytes passed to Apply that are not in the store
	// yet. It is called from any goroutine.
	Backlog() int64
	// Durable fills dst with the highest raft index of each shard whose effects
	// survive a power cut as of the returned watermark.
	Durable(dst map[sharding.ShardID]uint64) (watermark uint64)
}

// Sink receives changes of leadership and the outcomes of proposals and reads.
// It is called from the loop's goroutine and must not block.
type Sink interface {
	// LeaderChanged reports a new term, a new leader (0: none known) or the
	// start or end of this replica's leadership. When the leadership ends, its
	// proposals that are not applied yet have an unknown outcome.
	LeaderChanged(shard sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool)
	// QuorumChanged reports whether the nodes that this replica sees alive,
	// including its own, form a quorum of the shard's voters, and of both
	// halves while its membership is joint. It is called once for each replica
	// that starts, and then at each change. While there is no quorum, nothing
	// can commit and no read can be confirmed.
	QuorumChanged(shard sharding.ShardID, ok bool)
	// ProposalDropped reports a proposal that will never commit.
	ProposalDropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, err error)
	// ReadConfirmed reports that this replica led the shard after the read was
	// requested: any state that has applied index may answer it.
	ReadConfirmed(shard sharding.ShardID, token uint64, index uint64)
	// ReadFailed reports a read that was not confirmed.
	ReadFailed(shard sharding.ShardID, token uint64, err error)
}

// Transport carries frames between nodes. It delivers each frame at most once,
// in any order.
type Transport interface {
	// Send sends a frame to a node. It must not block, may drop the frame, and
	// owns it afterwards.
	Send(to sharding.NodeID, frame []byte)
}

// Placement knows which replicas belong to a shard, and on which nodes they
// live. It is called while the loop starts, and then from the loop's goroutine.
type Placement interface {
	// Locate returns the node of a replica, which never changes. If it does not
	// know a replica, the node is learned from the replica's messages; until
	// then messages to that replica are dropped.
	Locate(shard sharding.ShardID, replica sharding.ReplicaID) (sharding.NodeID, bool)
	// IsUnknownReplica reports whether a replica certainly does not belong to
	// the shard: the metadata is at least as new as the replica's id and does
	// not place the replica. Messages from such a replica are rejected unless
	// it is one of the group's members.
	IsUnknownReplica(shard sharding.ShardID, replica sharding.ReplicaID) bool
}

// Ticker drives the loop's logical clock.
type Ticker interface {
	C() <-chan time.Time
	Stop()
}

// Options configure a Core and its Loop. Zero fields get the default.
type Options struct {
	// Self is this node. It is used only in errors.
	Self sharding.NodeID
	// Log, Machine and Sink are required.
	Log     Log
	Machine StateMachine
	Sink    Sink
	// AwaitAttestation keeps all groups from voting, campaigning and responding until
	// Release is called, because it is not known yet whether the disk of this
	// node still holds everything that its replicas promised.
	AwaitAttestation bool
	// HeldShards lists recovered shards whose groups do not vote, campaign or
	// respond until ReleaseShard is called for them.
	HeldShards []sharding.ShardID
	// Transport and Placement are required for groups with other members.
	Transport Transport
	Placement Placement
	// OnGroupFailed is called from the loop's goroutine for a group that has
	// stopped because raft panicked in it, or because its log has lost entries
	// (ErrEntriesLost). If it is nil the panic propagates.
	OnGroupFailed func(shard sharding.ShardID, err error)
	// Snapshots is the state machine's side of snapshots and removals. If it is
	// nil, followers that need entries before the truncated index wait forever,
	// and no replica can be removed.
	Snapshots Snapshots
	// SnapshotFS and SnapshotDir hold received snapshots until the state
	// machine holds them durably. The loop owns the directory. Both are
	// required if Snapshots is set.
	SnapshotFS  disk.FS
	SnapshotDir string
	// Sender sends snapshots to other nodes: at most MaxSnapshotsOut at a time
	// (default 8) while MaxSnapshotsQueued wait (default 64). A transfer may
	// last as long as it makes progress. At most MaxSnapshotsIn are received at
	// a time (default 8); others wait.
	Sender             SnapshotSender
	MaxSnapshotsOut    int
	MaxSnapshotsQueued int
	MaxSnapshotsIn     int
	// CatchUpSpace is how many bytes of expendable files SnapshotDir may hold:
	// snapshots being sent, the log entries after them, and the received parts
	// of interrupted snapshots. The default is a quarter of the free space. If
	// the log entries after a snapshot do not fit, the snapshot starts over. If
	// a snapshot's file does not fit, the snapshot is streamed directly from
	// the store. CatchUpSpace is called from any goroutine.
	CatchUpSpace func() int64
	// AppliedIndex returns the index up to which the machine has applied a
	// shard when it is opened, as of the recovered watermark. nil means that
	// the machine has nothing beyond the truncated index.
	AppliedIndex func(shard sharding.ShardID) uint64
	// OnFatal is called once, from the loop's goroutine, if the log failed. The
	// process is expected to exit. Nothing is acknowledged afterwards.
	OnFatal func(err error)

	// Tick is the unit of ElectionTicks and HeartbeatTicks; default 100 ms.
	Tick time.Duration
	// ElectionTicks is the time for which a follower waits for a message from
	// the leader before it starts an election. A random time of up to the same
	// length is added. Default 10.
	ElectionTicks int
	// HeartbeatTicks is the time between two heartbeats of a leader; default 1.
	HeartbeatTicks int
	// A node from which nothing has arrived counts as alive for SuspectTicks
	// after it became known; default 7. The caller of PeerSuspected uses the
	// same timeout.
	SuspectTicks int
	// MaxCampaigns bounds the groups that campaign per tick because their
	// leader's node is suspected; default 64.
	MaxCampaigns int
	// QuiesceTicks is the time for which a group without work stays awake;
	// default 5.
	QuiesceTicks int
	// NewTicker creates the ticker; default time.NewTicker.
	NewTicker func(time.Duration) Ticker
	// Now is the clock that measures how late the loop and its callers run;
	// default time.Now.
	Now func() time.Time
	// TruncateTicks is the time between two attempts to truncate the log; default
	// 10.
	TruncateTicks int

	// MaxEntryBytes bounds the data of a proposal; default 1 MiB.
	MaxEntryBytes int
	// MaxQueueBytes and MaxQueueCount bound the queue in front of the loop;
	// default 16 MiB and 65,536 (of proposals, of reads and of messages each).
	// If the queue is full, proposals and reads fail with ErrBusy and messages
	// are dropped.
	MaxQueueBytes int64
	MaxQueueCount int
	// MaxBacklogBytes bounds the machine's backlog. Above it, proposals fail with
	// ErrBusy, and above twice as much, followers drop appends. Default 64 MiB.
	MaxBacklogBytes int64
	// MaxUncommittedBytes bounds the uncommitted entries of a group; further
	// proposals are dropped; default 16 MiB.
	MaxUncommittedBytes uint64
	// MaxMessageBytes bounds the entries of one append; default 512 KiB.
	MaxMessageBytes uint64
	// MaxInflightMessages and MaxInflightBytes bound the unacknowledged appends
	// of a follower; default 128 and 8 MiB.
	MaxInflightMessages int
	MaxInflightBytes    uint64
	// MaxApplyBytes bounds the entries passed to the machine at a time per
	// group; default 4 MiB.
	MaxApplyBytes uint64
	// MaxReads bounds the reads of a group that wait for confirmation; default
	// 16,384. Further reads fail with ErrBusy.
	MaxReads int
	// MaxRecordBytes is the length at which a turn starts another log record;
	// default 4 MiB. A single larger entry is still one record.
	MaxRecordBytes int
	// MaxFrameBytes is the length at which messages to a node start another
	// frame; default 2 MiB.
	MaxFrameBytes int
	// RetainBytes is the size of the entries before the durable index that a group
	// with other members keeps for followers that lag. All groups together keep at
	// most RetainTotalBytes of entries in memory. A follower that lags further
	// gets a snapshot. Default 4 MiB and 64 MiB.
	RetainBytes      int64
	RetainTotalBytes int64
	// MaxPinnedSegments is how many segments before the end of the log a group's
	// oldest entry may be; if it is older, the group's entries are rewritten at
	// the end. Default 8.
	MaxPinnedSegments uint64

	// WithoutSteady makes every turn of a group take a raft.Ready. Tests compare
	// groups with and without the steady state.
	WithoutSteady bool

	// Logger receives events that matter to an operator; default none.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Tick = or(o.Tick, 100*time.Millisecond)
	o.ElectionTicks = or(o.ElectionTicks, 10)
	o.HeartbeatTicks = or(o.HeartbeatTicks, 1)
	o.SuspectTicks = or(o.SuspectTicks, 7)
	o.QuiesceTicks = or(o.QuiesceTicks, 5)
	o.MaxCampaigns = or(o.MaxCampaigns, 64)
	o.TruncateTicks = or(o.TruncateTicks, 10)
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
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
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

// Validate returns every problem with the options of a Loop.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.Log == nil || o.Machine == nil || o.Sink == nil {
		errs = append(errs, errors.New("log, machine and sink are required"))
	}
	if (o.Transport == nil) != (o.Placement == nil) {
		errs = append(errs, errors.New("transport and placement must be set together"))
	}
	if o.Snapshots != nil && (o.SnapshotFS == nil || o.SnapshotDir == "") {
		errs = append(errs, errors.New("snapshots need a file system and a directory"))
	}
	if o.MaxSnapshotsOut < 1 || o.MaxSnapshotsQueued < 0 || o.MaxSnapshotsIn < 1 {
		errs = append(errs, errors.New("snapshot limits must be positive"))
	}
	if o.HeartbeatTicks < 1 || o.ElectionTicks <= o.HeartbeatTicks {
		errs = append(errs, fmt.Errorf("election ticks, %d, must exceed heartbeat ticks, %d, which must be at least 1", o.ElectionTicks, o.HeartbeatTicks))
	}
	if o.SuspectTicks < 1 || o.MaxCampaigns < 1 {
		errs = append(errs, fmt.Errorf("suspect ticks, %d, and max campaigns, %d, must be at least 1", o.SuspectTicks, o.MaxCampaigns))
	}
	if o.MaxInflightBytes < o.MaxMessageBytes {
		errs = append(errs, fmt.Errorf("max inflight bytes, %d, must not be below max message bytes, %d", o.MaxInflightBytes, o.MaxMessageBytes))
	}
	if o.MaxEntryBytes < 1 || o.MaxEntryBytes > wire.MaxEntryBytes {
		errs = append(errs, fmt.Errorf("max entry bytes, %d, must be between 1 and %d", o.MaxEntryBytes, wire.MaxEntryBytes))
	}
	return errors.Join(errs...)
}

// GroupConfig describes a replica to be created on this node.
type GroupConfig struct {
	Shard sharding.ShardID
	// Replica is this node's replica. Its id is never reused.
	Replica sharding.ReplicaID
	// Voters and Learners are the group's first members. They are the same on
	// every replica ever created in the group, including replicas that join
	// later and find the membership changes in the log.
	Voters, Learners []sharding.ReplicaID
}

var (
	// ErrBusy: a bound is reached and the call had no effect. Retry later.
	ErrBusy = errors.New("raftgroup: queue is full")
	// ErrStopped: the loop was closed or its log failed. Proposals that were
	// accepted earlier have an unknown outcome.
	ErrStopped = errors.New("raftgroup: stopped")
	// ErrUnknownShard: this node holds no replica of the shard.
	ErrUnknownShard = errors.New("raftgroup: this node has no replica of the shard")
	// ErrGroupExists: this node already holds a replica of the shard.
	ErrGroupExists = errors.New("raftgroup: this node already has a replica of the shard")
	// ErrReplicaRemoved: the replica, or a later replica of its shard, was
	// removed from this node. It can never be created again.
	ErrReplicaRemoved = errors.New("raftgroup: the replica was removed from this node")
	// ErrTooLarge: a proposal exceeds MaxEntryBytes. Retrying it fails again.
	ErrTooLarge = errors.New("raftgroup: the proposal is too large")
	// ErrFenced: the proposal was made for a term other than the group's. It
	// will never commit.
	ErrFenced = errors.New("raftgroup: the proposal was made in a different term")
	// ErrNotLeader: this replica does not lead the shard. A proposal that fails
	// with this error will never commit.
	ErrNotLeader = errors.New("raftgroup: this replica is not the leader")
	// ErrDropped: the group accepts no proposals at the moment because
	// leadership is being transferred or too much is uncommitted. The proposal
	// will never commit, but it may be retried.
	ErrDropped = errors.New("raftgroup: the proposal was dropped")
)
