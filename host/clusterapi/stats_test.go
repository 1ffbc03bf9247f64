package clusterapi

import (
	"fmt"
	"math"
	"testing"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/telemetry"
)

// counted returns a sample in which every counter is a multiple of commands and
// every stage has the histogram h.
func counted(at time.Time, h *telemetry.Histogram, commands uint64) *Sample {
	var of [request.Stages]telemetry.HistogramSnapshot
	for stage := range of {
		of[stage].Add(h)
	}
	return &Sample{
		At: at, CPU: time.Duration(commands) * time.Millisecond, Commands: commands, Events: 2 * commands, Queries: 3 * commands, Rejections: 4 * commands, Faults: 5 * commands, Limited: 6 * commands,
		LogBytes: 7 * commands, LogSyncs: 8 * commands, Resident: 9, Waiting: 10, Led: 11, Processors: 12, Memory: 13, GuestMemory: 14, Space: 15, ReadOnly: true,
		Types:  map[string]TypeCounts{"order": {Commands: commands, Events: 2 * commands, Rejections: 3 * commands, Faults: 4 * commands, Fuel: 5 * commands, Resident: 6}},
		Stages: map[string]*[request.Stages]telemetry.HistogramSnapshot{"order": &of},
	}
}

// TestRatesCoverOnlyThePeriod: rates and latencies do not include anything
// before the period.
func TestRatesCoverOnlyThePeriod(t *testing.T) {
	h := telemetry.NewHistogram(telemetry.NewHistogramBounds(telemetry.LatencyBuckets()))
	for range 1_000 {
		h.Observe(time.Second)
	}
	at := time.Unix(1000, 0)
	from := counted(at, h, 100)
	for range 98 {
		h.Observe(time.Millisecond)
	}
	h.Observe(20 * time.Millisecond)
	h.Observe(20 * time.Millisecond)
	to := counted(at.Add(4*time.Second), h, 500)
	m := between("n1", from, to)
	n := m.GetNode()
	want := &clusterv1.NodeStats{
		CommandsPerSecond: 100, EventsPerSecond: 200, QueriesPerSecond: 300, RejectionsPerSecond: 400, FaultsPerSecond: 500, RateLimitedPerSecond: 600, LogBytesPerSecond: 700, LogSyncsPerSecond: 800,
		EntitiesResident: 9, RequestsWaiting: 10, ShardsLed: 11, Processors: 12, MemoryBytes: 13, GuestMemoryBytes: 14, DiskFreeBytes: 15, DiskReadOnly: true, ProcessorsUsed: 0.1,
	}
	if math.Abs(n.GetProcessorsUsed()-0.1) < 1e-9 {
		n.ProcessorsUsed = 0.1
	}
	if n.String() != want.String() {
		t.Errorf("%v\nwant %v", n, want)
	}
	if m.GetNodeId() != "n1" || m.GetPeriod().AsDuration() != 4*time.Second || !m.GetMeasuredAt().AsTime().Equal(to.At) || len(m.GetTypes()) != 1 {
		t.Fatalf("%v", m)
	}
	o := m.GetTypes()[0]
	if o.GetEntityType() != "order" || o.GetCommandsPerSecond() != 100 || o.GetEventsPerSecond() != 200 || o.GetRejectionsPerSecond() != 300 || o.GetFaultsPerSecond() != 400 || o.GetFuelPerSecond() != 500 || o.GetEntitiesResident() != 6 {
		t.Errorf("%v", o)
	}
	for _, s := range []*clusterv1.StageTime{o.GetQueue(), o.GetGuest(), o.GetCommit()} {
		if p50, p99 := s.GetP50().AsDuration(), s.GetP99().AsDuration(); p50 < time.Millisecond || p50 > 1_091*time.Microsecond || p99 < 20*time.Millisecond || p99 > 21_900*time.Microsecond {
			t.Errorf("%v", s)
		}
	}
	// A period without commands has no latencies.
	idle := between("n1", to, counted(to.At.Add(time.Second), h, 500)).GetTypes()[0]
	if idle.GetQueue() != nil || idle.GetCommandsPerSecond() != 0 {
		t.Errorf("%v", idle)
	}
	// The rates of a new type include everything that it has done.
	from.Types, from.Stages = nil, nil
	if o := between("n1", from, to).GetTypes()[0]; o.GetCommandsPerSecond() != 125 || o.GetQueue().GetP50().AsDuration() < 900*time.Millisecond {
		t.Errorf("%v", o)
	}
	// Two samples at the same time give rates of 0, not NaN.
	if n := between("n1", from, from).GetNode(); n.GetCommandsPerSecond() != 0 || n.GetProcessorsUsed() != 0 {
		t.Errorf("%v", n)
	}
}

// TestReportedTypesAreBounded checks that if there are too many types, only
// the types with the most commands are reported.
func TestReportedTypesAreBounded(t *testing.T) {
	from, to := &Sample{At: time.Unix(1, 0)}, &Sample{At: time.Unix(2, 0), Types: map[string]TypeCounts{}}
	for i := range 250 {
		to.Types[fmt.Sprintf("t%03d", i)] = TypeCounts{Commands: uint64(i)}
	}
	m := between("n1", from, to)
	if len(m.GetTypes()) != mostTypes || m.GetMoreTypes() != 50 || m.GetTypes()[0].GetEntityType() != "t249" || m.GetTypes()[199].GetEntityType() != "t050" {
		t.Errorf("%d types, %d more, the first %v", len(m.GetTypes()), m.GetMoreTypes(), m.GetTypes()[0])
	}
}

// TestConcurrentCallersShareASample checks that concurrent callers share one
// sample, and that later callers get a new one.
func TestConcurrentCallersShareASample(t *testing.T) {
	taken, at := 0, time.Now()
	s := &statsWatch{Counters: countersFunc(func() *Sample { taken++; return &Sample{At: at} })}
	at = time.Now().Add(time.Hour) // a time far ahead, so that the sample is fresh even on a slow machine
	first := s.sample()
	if second := s.sample(); second != first || taken != 1 {
		t.Errorf("%d samples were taken", taken)
	}
	first.At = time.Now().Add(-freshFor)
	if third := s.sample(); third == first || taken != 2 {
		t.Errorf("%d samples were taken", taken)
	}
}

// countersFunc makes a function a Counters.
type countersFunc func() *Sample

func (f countersFunc) Sample() *Sample { return f() }
