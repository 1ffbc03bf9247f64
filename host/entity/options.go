package entity

import (
	"log/slog"
	"math"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/sharding"
)

// Options configure a lane. The zero value of a bound means its default.
type Options struct {
	Journal   Journal
	Histories Histories
	Types     Types
	// Bindings returns the revision up to which this node serves no type by a
	// binding older than the last. A lane leads a shard only when that is at least
	// the shard's own. It must not block. Nil: any shard may be led.
	Bindings func() uint64
	// Remembered names the types whose entities are started again; nil: none.
	// It is asked when a shard is led, and when the bindings have moved, and
	// must not block. Living reads which these are.
	Remembered func() []string
	Living     Living
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
	// Keeping returns what was set of how much the entities of a type keep. It
	// must not block. Nil: nothing is set.
	Keeping func(entityType string) Keeping
	Logger  *slog.Logger
	Now     func() time.Time // the wall clock; time.Now when nil

	Window          Window        // of remembered commands; the same on every node
	EntityInFlight  int           // requests waiting on one entity, default 1,024
	ShardInFlight   int           // requests a shard has undecided, default 4,096
	BatchBytes      int           // an entry is proposed when it reaches this, default 256 KiB
	ProposedBytes   int           // proposed and undecided per shard, default 4 MiB
	InstanceBytes   int64         // guest memory at which a module gets another instance, default 24 MiB
	LaneBytes       int64         // guest memory of the lane, at which entities leave to make room, default 2 GiB
	LoadChunkBytes  int           // events handed to a guest at once, default 128 KiB
	Loaders         int           // loads at the same time, default 8
	FoldAfter       time.Duration // idle time after which an entity in memory is folded, default 2 s
	PassivateAfter  time.Duration // idle time for types that do not say, default 2 min
	RememberRate    int           // entities started again in a second, default 5,000
	TimerRate       int           // timers that may fire in a second however much else there is to do, default 10,500; up to 8 times that if there is nothing
	FilterAbove     int           // remembered ids from which a snapshot has a filter, default 128
	SnapshotEvents  int           // to replay, at which a snapshot is due for types that do not say; default 256
	SnapshotBytes   int           // of records to replay, the same; default 64 KiB
	ReplayEvents    int           // replayed by a load, after which a snapshot is taken for types that do not say; default an eighth of SnapshotEvents
	ReplayBytes     int           // of records replayed, the same, of SnapshotBytes
	EntitySends     int           // sends of an entity on their way, default 1,024; twice as many where it carries out sends
	ShardSends      int           // those of a shard, default 65,536; the same
	ShardSendBytes  int           // and their bytes, default 256 MiB; the same
	ShardLetters    int           // dead letters of a shard, default 10,000; sends that would be more wait
	Limits          abi.Limits
	ParkAfterFaults int // faults in a row before an entity is parked, default 3
	ParkFor         time.Duration
}

func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
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
	def(&o.ShardLetters, 10_000)
	if o.InstanceBytes == 0 {
		o.InstanceBytes = 24 << 20
	}
	if o.LaneBytes == 0 {
		o.LaneBytes = 2 << 30
	}
	if o.PassivateAfter == 0 {
		o.PassivateAfter = 2 * time.Minute
	}
	if o.FoldAfter == 0 {
		o.FoldAfter = 2 * time.Second
	}
	if o.ParkFor == 0 {
		o.ParkFor = 10 * time.Second
	}
	if o.Limits == (abi.Limits{}) {
		o.Limits = abi.DefaultLimits()
	}
	if o.Window == (Window{}) {
		o.Window = DefaultWindow()
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
