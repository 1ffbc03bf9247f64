package clusterapi

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/telemetry"
)

// mostTypes limits the types that are reported.
const mostTypes = 200

// Sample has the counters of a node at a point in time. It must not be changed.
type Sample struct {
	At    time.Time
	CPU   time.Duration // processor time of the process
	Types map[string]TypeCounts
	// Stages has the stage histograms of the types that are measured separately.
	Stages map[string]*[request.Stages]telemetry.HistogramSnapshot

	Commands, Events, Queries, Rejections, Faults, Limited uint64
	LogBytes, LogSyncs                                     uint64

	// The other fields are gauges.
	Resident, Waiting          uint64
	Led, Processors            uint32
	Memory, GuestMemory, Space uint64 // in bytes
	ReadOnly                   bool
}

// TypeCounts has the counters of a type.
type TypeCounts struct {
	Commands, Events, Rejections, Faults, Fuel uint64
	Resident                                   uint64
}

// between returns the activity of a node between two samples.
func between(node string, from, to *Sample) *clusterv1.WatchStatsResponse {
	d := duration(to.At.Sub(from.At))
	out := &clusterv1.WatchStatsResponse{
		NodeId: node, MeasuredAt: timestamppb.New(to.At), Period: durationpb.New(to.At.Sub(from.At).Truncate(time.Millisecond)),
		Node: &clusterv1.NodeStats{
			CommandsPerSecond: d.rate(from.Commands, to.Commands), EventsPerSecond: d.rate(from.Events, to.Events), QueriesPerSecond: d.rate(from.Queries, to.Queries),
			RejectionsPerSecond: d.rate(from.Rejections, to.Rejections), FaultsPerSecond: d.rate(from.Faults, to.Faults), RateLimitedPerSecond: d.rate(from.Limited, to.Limited),
			LogBytesPerSecond: d.rate(from.LogBytes, to.LogBytes), LogSyncsPerSecond: d.rate(from.LogSyncs, to.LogSyncs),
			ProcessorsUsed:   d.rate(uint64(from.CPU), uint64(to.CPU)) / float64(time.Second),
			EntitiesResident: to.Resident, ShardsLed: to.Led, RequestsWaiting: to.Waiting, Processors: to.Processors,
			MemoryBytes: to.Memory, GuestMemoryBytes: to.GuestMemory, DiskFreeBytes: to.Space, DiskReadOnly: to.ReadOnly,
		},
	}
	for name, t := range to.Types {
		was := from.Types[name]
		stats := &clusterv1.TypeStats{
			EntityType: name, CommandsPerSecond: d.rate(was.Commands, t.Commands), EventsPerSecond: d.rate(was.Events, t.Events),
			RejectionsPerSecond: d.rate(was.Rejections, t.Rejections), FaultsPerSecond: d.rate(was.Faults, t.Faults),
			FuelPerSecond: d.rate(was.Fuel, t.Fuel), EntitiesResident: t.Resident,
		}
		if took := to.Stages[name]; took != nil {
			var before [request.Stages]telemetry.HistogramSnapshot
			if b := from.Stages[name]; b != nil {
				before = *b
			}
			stats.Queue = stage(took[request.StageQueue].Since(before[request.StageQueue]))
			stats.Guest = stage(took[request.StageGuest].Since(before[request.StageGuest]))
			stats.Commit = stage(took[request.StageCommit].Since(before[request.StageCommit]))
		}
		out.Types = append(out.Types, stats)
	}
	slices.SortFunc(out.Types, func(a, b *clusterv1.TypeStats) int {
		return cmp.Or(cmp.Compare(b.GetCommandsPerSecond(), a.GetCommandsPerSecond()), cmp.Compare(b.GetEntitiesResident(), a.GetEntitiesResident()), cmp.Compare(a.GetEntityType(), b.GetEntityType()))
	})
	if more := len(out.Types) - mostTypes; more > 0 {
		out.Types, out.MoreTypes = out.Types[:mostTypes], uint32(more)
	}
	return out
}

// duration is the time between two samples.
type duration time.Duration

// rate returns the increase of a counter per second. A counter that was reset
// counts from 0.
func (d duration) rate(was, is uint64) float64 {
	if was > is {
		was = 0
	}
	if d <= 0 {
		return 0
	}
	return float64(is-was) / time.Duration(d).Seconds()
}

// stage returns the durations of a stage within a period; nil if nothing was
// measured.
func stage(s telemetry.HistogramSnapshot) *clusterv1.StageTime {
	if s.Count() == 0 {
		return nil
	}
	return &clusterv1.StageTime{P50: durationpb.New(s.Quantile(0.5)), P99: durationpb.New(s.Quantile(0.99))}
}
