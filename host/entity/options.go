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

// Options configure an executor. The zero value of a bound means its default.
type Options struct {
	Journal   Journal
	Histories Histories
	Types     Types
	// Bindings returns the revision up to which this node serves no type by a
	// binding older than the last. An executor leads a shard only when that is at least
	// the shard's own. It must not block. Nil: any shard may be led.
	Bindings func() uint64
	// Remembered names the types whose entities are started again; nil: none.
	// It is asked when a shard is led, and when the bindings have moved, and
	// must not block. Existing reads which these are.
	Remembered func() []string
	Existing   existingReader
	// Singletons are the entities of the singleton types among these that belong
	// to a shard. Nil: there are none.
	Singletons func(sharding.ShardID) []sharding.EntityID
	// IdleAfter returns how long the entities of a type may be idle when that
	// was set in the place of what the type says; negative is for ever. It must
	// not block. Nil: nothing is set.
	IdleAfter func(entityType string) (after time.Duration, set bool)
	// TimerFired is told how late each timer fires. It must not block. Nil: nobody
	// is.
	TimerFired func(late time.Duration)
	// TimerSpans makes spans of timers that fire. Nil: they have none.
	TimerSpans timers.Spans
	// Retention returns what was set of how much the entities of a type keep. It
	// must not block. Nil: nothing is set.
	Retention func(entityType string) RetentionOverride
	// MaxTimers returns how many timers an entity of the type may have. It must
	// not block. Nil: DefaultMaxTimers.
	MaxTimers func(entityType string) int
	// Median returns how far the clocks that this node and its peers have are
	// ahead of this node's, by their median, where it is known: an executor gives no
	// times more than clockMost past it. It must not block. Nil: it is not known.
	Median func() (offset time.Duration, known bool)
	// Stages counts how long commands take. Nil: nothing does.
	Stages *StageTable
	// States is given the states of some entities that leave. Nil: none is
	// checked.
	States StateCheck
	Logger *slog.Logger
	Now    func() time.Time // the wall clock; time.Now when nil

	Level func() sharding.ClusterVersion // the cluster's, for what is written; nil: sharding.Version1

	Window         window.Limits // of remembered commands; the same on every node
	EntityInFlight int           // requests waiting on one entity, default 1,024
	ShardInFlight  int           // requests a shard has undecided, default 4,096
	BatchBytes     int           // an entry is proposed when it reaches this, default 256 KiB
	ProposedBytes  int           // proposed and undecided per shard, default 4 MiB
	LeaveSlice     int           // entities of shards that others lead now that leave memory between two turns, default 1,024
	InstanceBytes  int64         // guest memory at which a module gets another instance, default 24 MiB
	LaneBytes      int64         // guest memory of the executor, at which entities leave to make room, default 2 GiB
	WindowBytes    int64         // heap of what entities remember of their commands, at which entities leave, default an eighth of LaneBytes
	LoadChunkBytes int           // events handed to a guest at once, default 128 KiB
	Loaders        int           // loads at the same time, default 8
	DormantAfter   time.Duration // idle time after which an entity in memory is dormant, default 2 s
	PassivateAfter time.Duration // idle time for types that do not say, default 2 min
	RememberRate   int           // entities started again in a second, default 5,000
	TimerRate      int           // timers that may fire in a second however much else there is to do, default 10,500; up to 8 times that if there is nothing
	// Outbox returns what the shards that the node leads have of sends, as of a
	// moment ago. It must not block. Nil: only shards and entities are bounded.
	Outbox func() (messages, bytes int)
	// Suspended reports that the commands of a type are held: those of callers are
	// refused, sends and timers wait. It must not block; loaders ask it too. Nil:
	// no type is.
	Suspended        func(entityType string) bool
	LeastTick        time.Duration // between two ticks of a schedule, and from a timer to those that its command sets to be due at once, default 1 s
	FilterAbove      int           // remembered ids from which a snapshot has a filter, default 128
	SnapshotEvents   int           // to replay, at which a snapshot is due for types that do not say; default 256
	SnapshotBytes    int           // of records to replay, the same; default 64 KiB
	ReplayEvents     int           // replayed by a load, after which a snapshot is taken for types that do not say; default an eighth of SnapshotEvents
	ReplayBytes      int           // of records replayed, the same, of SnapshotBytes
	EntitySends      int           // sends of an entity on their way, default 1,024; twice as many where it carries out sends
	ShardSends       int           // those of a shard, default 65,536; the same
	ShardSendBytes   int           // and their bytes, default 256 MiB; the same
	NodeSends        int           // those of all shards that the node leads, default 262,144; the same
	NodeSendBytes    int           // and their bytes, default 1 GiB; the same
	ShardDeadLetters int           // dead letters of a shard, default 10,000; sends that would be more wait
	Limits           abi.Limits
	ParkAfterFaults  int // faults in a row before an entity is parked, default 3
	ParkFor          time.Duration
}

// DefaultMaxTimers is how many timers an entity may have unless that is set.
const DefaultMaxTimers = 10_000

// WithDefaults returns the options with what was left out.
func (o Options) WithDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if o.Level == nil {
		o.Level = sharding.FirstVersion
	}
	if o.MaxTimers == nil {
		o.MaxTimers = func(string) int { return DefaultMaxTimers }
	}
	def(&o.EntityInFlight, 1024)
	def(&o.ShardInFlight, 4096)
	def(&o.BatchBytes, 256<<10)
	def(&o.ProposedBytes, 4<<20)
	def(&o.LoadChunkBytes, 128<<10)
	def(&o.Loaders, 8)
	def(&o.SnapshotEvents, 256)
	def(&o.FilterAbove, 128)
	def(&o.RememberRate, 5000)
	def(&o.TimerRate, 10_500)
	def(&o.SnapshotBytes, 64<<10)
	def(&o.ReplayEvents, max(o.SnapshotEvents/8, 1))
	def(&o.ReplayBytes, max(o.SnapshotBytes/8, 1))
	def(&o.ParkAfterFaults, 3)
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
	if o.LaneBytes == 0 {
		o.LaneBytes = 2 << 30
	}
	if o.WindowBytes == 0 {
		o.WindowBytes = o.LaneBytes / 8
	}
	if o.PassivateAfter == 0 {
		o.PassivateAfter = 2 * time.Minute
	}
	if o.DormantAfter == 0 {
		o.DormantAfter = 2 * time.Second
	}
	if o.Suspended == nil {
		o.Suspended = func(string) bool { return false }
	}
	if o.LeastTick == 0 {
		o.LeastTick = time.Second
	}
	if o.ParkFor == 0 {
		o.ParkFor = 10 * time.Second
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
	if o.Bindings == nil {
		o.Bindings = func() uint64 { return math.MaxUint64 }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Journal is where an executor's decisions go. No method blocks.
type Journal interface {
	// Propose hands an entry to the shard's log. The journal owns data from
	// then on. An error is definite: the entry will never commit. The outcome
	// of an accepted entry arrives as Verdict, Dropped or a step-down.
	Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error
	// ReadIndex asks for proof that this node still leads the shard; it
	// arrives as ReadConfirmed with the token, or ReadFailed.
	ReadIndex(shard sharding.ShardID, token uint64) error
	// Busy reports that the journal's queues are near their bounds: deciding
	// more commands now would only have them refused.
	Busy() bool
}

// Histories reads what has been applied, whether or not it has reached the
// store.
type Histories interface {
	HistoryReader
	// DueTimers returns the shard's timers that are due by then, the oldest
	// first, at most limit of those that skip does not refuse, and when the
	// next one after them is due, math.MaxInt64 for none.
	DueTimers(ctx context.Context, shard sharding.ShardID, by int64, limit int,
		skip func(entity sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error)
	// Received is the highest number that an entity has from a source.
	Received(shard sharding.ShardID, entity, source sharding.EntityID) (uint64, error)
	// TimerRoom is how many timers an entity has, and how many of the names are
	// those of none of them. It does no I/O.
	TimerRoom(shard sharding.ShardID, entity sharding.EntityID, names [][]byte) (has, added int)
	// MessageTotals is what a shard has of sends. It does no I/O.
	MessageTotals(shard sharding.ShardID) journal.MessageTotals
}
