package entity

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// activations knows the activations that this node serves. No method may
// block.
type activations interface {
	// ReachedRevision returns the highest revision whose activations this node
	// serves completely, so that no type is served by an older activation. An
	// executor leads a shard only if this is at least the shard's revision.
	ReachedRevision() uint64
	alwaysOnTypes
}

// typeSettings provides the settings of entity types that executors use. No
// method may block, and loaders call them too.
type typeSettings interface {
	// IdleAfter returns how long the entities of a type may be idle; a negative
	// duration means forever. set is false if the setting is unset, so that the
	// type's own value applies.
	IdleAfter(entityType string) (after time.Duration, set bool)
	// RetentionOverride returns the overrides of a type's retention.
	RetentionOverride(entityType string) RetentionOverride
	// MaxTimers returns the maximum number of timers of an entity.
	MaxTimers(entityType string) int
	// IsSuspended reports whether a type is suspended: callers' commands are
	// rejected, and messages and timers wait.
	IsSuspended(entityType string) bool
	// RunLimits returns the limits of a type's runs.
	RunLimits(entityType string) RunLimits
}

// RunLimits limit the runs of a workflow type. Zero means no limit.
type RunLimits struct {
	// Open is the maximum number of open runs in a shard.
	Open int
	// Time is how long a run that begins now may stay open.
	Time time.Duration
}

// timerObserver observes timers.
type timerObserver interface {
	// TimerFired is called with the lateness of each timer that fires. It must
	// not block.
	TimerFired(late time.Duration)
}

// medianClock compares the nodes' clocks.
type medianClock interface {
	// Median returns the median of the offsets of the nodes' clocks from this
	// node's clock, if it is known. An executor's log clock does not exceed
	// that median by more than clockMost. It must not block.
	Median() (offset time.Duration, known bool)
}

// outboxTotals counts messages in flight.
type outboxTotals interface {
	// Totals returns recent totals of the messages in flight of all shards that
	// the node leads. It must not block.
	Totals() (messages, bytes int)
	// HasStuckOutcomes reports whether, at present, a shard must not execute
	// messages of the sender that want an outcome, because the sender does not
	// accept outcomes that wait in the shard's outbox. It must not block.
	HasStuckOutcomes(shard sharding.ShardID, sender sharding.EntityID) bool
}

// unrestricted are activations that let the executor lead every shard and have
// no always-on types.
type unrestricted struct{}

func (unrestricted) ReachedRevision() uint64                         { return math.MaxUint64 }
func (unrestricted) AlwaysOn() []string                              { return nil }
func (unrestricted) Singletons(sharding.ShardID) []sharding.EntityID { return nil }

// defaultSettings are the settings of types that set nothing.
type defaultSettings struct{}

func (defaultSettings) IdleAfter(string) (time.Duration, bool)     { return 0, false }
func (defaultSettings) RetentionOverride(string) RetentionOverride { return RetentionOverride{} }
func (defaultSettings) MaxTimers(string) int                       { return DefaultMaxTimers }
func (defaultSettings) IsSuspended(string) bool                    { return false }
func (defaultSettings) RunLimits(string) RunLimits                 { return RunLimits{} }

// Options configure an executor. Zero limits get their default.
type Options struct {
	Journal   Journal
	Histories histories
	Types     Types
	// Activations decides which shards may be led and which types are always-on.
	// If it is nil, every shard may be led, and no type is always-on.
	Activations activations
	// Existing lists the entities of always-on types.
	Existing existingReader
	// Settings are the settings of types. It may be nil.
	Settings typeSettings
	// TimerObserver is notified of timers that fire. It may be nil.
	TimerObserver timerObserver
	// TimerSpans makes spans of timers that fire. It may be nil.
	TimerSpans timers.Spans
	// Clocks compares the nodes' clocks. It may be nil.
	Clocks medianClock
	// Stages measures the durations of commands. It may be nil.
	Stages *StageTable
	// States checks the states of some entities that leave memory. It may be
	// nil.
	States stateCheck
	Logger *slog.Logger
	Now    func() time.Time // the wall clock; default time.Now

	ClusterVersion func() sharding.ClusterVersion // the cluster version for written formats; default sharding.FirstVersion

	Window         window.Limits // limits of idempotency windows; must be equal on every node
	EntityInFlight int           // waiting requests of an entity, default 1,024
	ShardInFlight  int           // undecided requests of a shard, default 4,096
	BatchBytes     int           // size at which an entry is proposed, default 256 KiB
	ProposedBytes  int           // proposed and undecided bytes of a shard, default 4 MiB
	LeaveSlice     int           // entities that leave memory between two turns because their shard has another leader, default 1,024
	InstanceBytes  int64         // guest memory at which a module gets another instance, default 24 MiB
	ExecutorBytes  int64         // guest memory of the executor at which entities are evicted, default 2 GiB
	WindowBytes    int64         // memory of idempotency windows at which entities are evicted, default an eighth of ExecutorBytes
	LoadChunkBytes int           // events passed to a guest at a time, default 128 KiB
	Loaders        int           // concurrent loads, default 8
	HibernateAfter time.Duration // idle time after which an entity in memory hibernates, default 2 s
	PassivateAfter time.Duration // idle time for types that set none, default 2 min
	AlwaysOnRate   int           // always-on entities started per second, default 5,000
	TimerRate      int           // timers per second that may fire under any load, default 10,500; up to 8 times as many without other requests
	// Outbox counts the messages of the node. If it is nil, only the limits per
	// shard and entity apply.
	Outbox                outboxTotals
	MinScheduleInterval   time.Duration // minimum interval of a schedule, and minimum delay between a timer and the timers that its command sets, default 1 s
	FilterAbove           int           // remembered ids above which a snapshot has a filter, default 128
	SnapshotEvents        int           // a snapshot is due once a load would replay this many events, for types that set no number; default 256
	SnapshotBytes         int           // a snapshot is due once a load would replay this many bytes of records; default 64 KiB
	ReplayEvents          int           // a load that replays this many events makes a snapshot due, for types that set no number; default an eighth of SnapshotEvents
	ReplayBytes           int           // a load that replays this many bytes of records makes a snapshot due; default an eighth of SnapshotBytes
	RunEvents             int           // maximum events of a run since its last checkpoint; a run with more is ended; default 400,000
	RunBytes              int           // maximum bytes of the records of these events, default 128 MiB
	EntitySends           int           // messages of an entity in flight, default 1,024; this limit and the next four are doubled for commands that are messages
	ShardSends            int           // messages of a shard in flight, default 65,536
	ShardSendBytes        int           // bytes of these messages, default 256 MiB
	NodeSends             int           // messages in flight of all shards that the node leads, default 262,144
	NodeSendBytes         int           // bytes of these messages, default 1 GiB
	ShardDeadLetters      int           // dead letters of a shard, default 10,000; messages that would exceed it wait
	Limits                abi.Limits
	QuarantineAfterFaults int // consecutive faults before an entity is quarantined, default 3
	QuarantineFor         time.Duration

	longReads chan struct{} // limits long loads; shared by the node's executors
}

// DefaultMaxTimers is the maximum number of timers of an entity if the settings
// of its type set none.
const DefaultMaxTimers = 10_000

// withDefaults returns the options with defaults for fields that are not set.
func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if o.ClusterVersion == nil {
		o.ClusterVersion = sharding.FirstVersion
	}
	if o.Activations == nil {
		o.Activations = unrestricted{}
	}
	if o.Settings == nil {
		o.Settings = defaultSettings{}
	}
	def(&o.EntityInFlight, 1024)
	def(&o.ShardInFlight, 4096)
	def(&o.BatchBytes, 256<<10)
	def(&o.ProposedBytes, 4<<20)
	def(&o.LoadChunkBytes, 128<<10)
	def(&o.Loaders, 8)
	if o.longReads == nil {
		o.longReads = newLongReads()
	}
	def(&o.SnapshotEvents, 256)
	def(&o.FilterAbove, 128)
	def(&o.AlwaysOnRate, 5000)
	def(&o.TimerRate, 10_500)
	def(&o.SnapshotBytes, 64<<10)
	def(&o.ReplayEvents, max(o.SnapshotEvents/8, 1))
	def(&o.ReplayBytes, max(o.SnapshotBytes/8, 1))
	def(&o.QuarantineAfterFaults, 3)
	def(&o.RunEvents, 400_000)
	def(&o.RunBytes, 128<<20)
	def(&o.EntitySends, 1024)
	def(&o.ShardSends, 1<<16)
	def(&o.ShardSendBytes, 256<<20)
	def(&o.ShardDeadLetters, 10_000)
	def(&o.NodeSends, 1<<18)
	def(&o.LeaveSlice, 1024)
	def(&o.NodeSendBytes, 1<<30)
	if o.InstanceBytes == 0 {
		o.InstanceBytes = 24 << 20
	}
	if o.ExecutorBytes == 0 {
		o.ExecutorBytes = 2 << 30
	}
	if o.WindowBytes == 0 {
		o.WindowBytes = o.ExecutorBytes / 8
	}
	if o.PassivateAfter == 0 {
		o.PassivateAfter = 2 * time.Minute
	}
	if o.HibernateAfter == 0 {
		o.HibernateAfter = 2 * time.Second
	}
	if o.MinScheduleInterval == 0 {
		o.MinScheduleInterval = time.Second
	}
	if o.QuarantineFor == 0 {
		o.QuarantineFor = 10 * time.Second
	}
	if o.Limits == (abi.Limits{}) {
		o.Limits = abi.DefaultLimits()
	}
	if o.Window == (window.Limits{}) {
		o.Window = window.DefaultLimits()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Journal is the log that an executor proposes to. No method blocks.
type Journal interface {
	// Propose submits an entry to the shard's log, and takes ownership of data.
	// An error is definite: the entry will never commit. The outcome of an
	// accepted entry arrives as an apply result, in NotifyDropped or with the
	// end of the leadership.
	Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error
	// ReadIndex requests confirmation that this node still leads the shard. The
	// answer arrives in ReadConfirmed or ReadFailed with the same token.
	ReadIndex(shard sharding.ShardID, token uint64) error
	// Busy reports whether the journal's queues are almost full, so that more
	// proposals would only be rejected.
	Busy() bool
}

// histories reads the applied state, whether or not it has reached the store.
type histories interface {
	historyReader
	// DueTimers implements timers.Reader.
	DueTimers(ctx context.Context, shard sharding.ShardID, by int64, limit int,
		skip func(entity sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error)
	// Received returns the highest message number that an entity has received
	// from a source.
	Received(shard sharding.ShardID, entity, source sharding.EntityID) (uint64, error)
	// TimerRoom returns the number of timers that an entity has, and how many
	// of the given names are new. It does no I/O.
	TimerRoom(shard sharding.ShardID, entity sharding.EntityID, names [][]byte) (has, added int)
	// OpenRuns returns the number of open runs of a type in a shard.
	OpenRuns(shard sharding.ShardID, entityType string) (uint64, error)
	// MessageTotals returns the totals of a shard's messages. It does no I/O.
	MessageTotals(shard sharding.ShardID) journal.MessageTotals
}
