package top

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// picture is the latest statistics of the nodes.
type picture struct {
	interval time.Duration
	nodes    map[string]nodeStats
	missing  map[string]bool
	hot      []*entityv1.ListHotEntitiesResponse_Entity
}

type nodeStats struct {
	at time.Time // by the local clock
	*clusterv1.WatchStatsResponse
}

func newPicture(interval time.Duration) *picture {
	return &picture{interval: interval, nodes: map[string]nodeStats{}, missing: map[string]bool{}}
}

// take adds a message. It drops old statistics, because their nodes may have
// left.
func (p *picture) take(m *clusterv1.WatchStatsResponse, now time.Time) {
	for _, node := range m.GetMissingNodes() {
		p.missing[node] = true
		delete(p.nodes, node)
	}
	for _, node := range m.GetLeftNodes() {
		delete(p.missing, node)
		delete(p.nodes, node)
	}
	if m.GetNode() != nil {
		p.nodes[m.GetNodeId()] = nodeStats{now, m}
		delete(p.missing, m.GetNodeId())
	}
	maps.DeleteFunc(p.nodes, func(_ string, s nodeStats) bool { return now.Sub(s.at) > 3*p.interval+5*time.Second })
}

// sums returns the statistics of each type, added over the nodes; the latencies
// are the maximum.
func (p *picture) sums() []*clusterv1.TypeStats {
	all := map[string]*clusterv1.TypeStats{}
	for _, s := range p.nodes {
		for _, t := range s.GetTypes() {
			sum := all[t.GetEntityType()]
			if sum == nil {
				sum = &clusterv1.TypeStats{EntityType: t.GetEntityType()}
				all[t.GetEntityType()] = sum
			}
			sum.CommandsPerSecond += t.GetCommandsPerSecond()
			sum.EventsPerSecond += t.GetEventsPerSecond()
			sum.RejectionsPerSecond += t.GetRejectionsPerSecond()
			sum.FaultsPerSecond += t.GetFaultsPerSecond()
			sum.FuelPerSecond += t.GetFuelPerSecond()
			sum.EntitiesResident += t.GetEntitiesResident()
			sum.Queue, sum.Guest, sum.Commit = longer(sum.Queue, t.GetQueue()), longer(sum.Guest, t.GetGuest()), longer(sum.Commit, t.GetCommit())
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *clusterv1.TypeStats) int {
		return cmp.Or(cmp.Compare(b.GetCommandsPerSecond(), a.GetCommandsPerSecond()), cmp.Compare(b.GetEntitiesResident(), a.GetEntitiesResident()), cmp.Compare(a.GetEntityType(), b.GetEntityType()))
	})
}

func longer(a, b *clusterv1.StageTime) *clusterv1.StageTime {
	if a == nil || b.GetP99().AsDuration() > a.GetP99().AsDuration() {
		return b
	}
	return a
}

// view returns the picture as JSON.
func (p *picture) view() any {
	out := struct {
		Nodes        []*cli.Object `json:"nodes"`
		Types        []*cli.Object `json:"types"`
		Hot          []*cli.Object `json:"hot"`
		MissingNodes []string      `json:"missingNodes"`
	}{Types: cli.Views(p.sums()), Hot: cli.Views(p.hot), MissingNodes: append([]string{}, slices.Sorted(maps.Keys(p.missing))...)}
	for _, id := range slices.Sorted(maps.Keys(p.nodes)) {
		out.Nodes = append(out.Nodes, cli.View(p.nodes[id].WatchStatsResponse))
	}
	return out
}

// printMissing prints the missing parts.
func (p *picture) printMissing(w io.Writer) {
	if len(p.missing) > 0 {
		fmt.Fprintln(w, "these nodes did not answer: "+cli.Clean(strings.Join(slices.Sorted(maps.Keys(p.missing)), ", ")))
	}
}

// write writes tables of at most lines lines; 0 means no limit.
func (p *picture) write(w io.Writer, lines int) {
	cli.Table(w, "NODE\tCOMMANDS/S\tEVENTS/S\tQUERIES/S\tREJECTED/S\tFAULTS/S\tLIMITED/S\tWAITING\tRESIDENT\tLEADS\tCPU\tMEMORY\tGUESTS\tLOG/S\tSYNCS/S\tDISK FREE", func(row func(...any)) {
		for _, id := range slices.Sorted(maps.Keys(p.nodes)) {
			n := p.nodes[id].GetNode()
			free := size(n.GetDiskFreeBytes())
			if n.GetDiskReadOnly() {
				free += ", read-only"
			}
			row(id, rate(n.GetCommandsPerSecond()), rate(n.GetEventsPerSecond()), rate(n.GetQueriesPerSecond()), some(n.GetRejectionsPerSecond()), some(n.GetFaultsPerSecond()), some(n.GetRateLimitedPerSecond()),
				n.GetRequestsWaiting(), n.GetEntitiesResident(), n.GetShardsLed(), fmt.Sprintf("%.2f of %d", n.GetProcessorsUsed(), n.GetProcessors()),
				size(n.GetMemoryBytes()), size(n.GetGuestMemoryBytes()), size(uint64(n.GetLogBytesPerSecond())), rate(n.GetLogSyncsPerSecond()), free)
		}
	})
	types := p.sums()
	if room := max(lines-len(p.nodes)-len(p.hot)-7, 3); lines > 0 && len(types) > room {
		types = types[:room]
	}
	fmt.Fprintln(w)
	cli.Table(w, "TYPE\tCOMMANDS/S\tEVENTS/S\tREJECTED/S\tFAULTS/S\tFUEL/S\tRESIDENT\tQUEUE P50\tP99\tGUEST P50\tP99\tCOMMIT P50\tP99", func(row func(...any)) {
		for _, t := range types {
			row(t.GetEntityType(), rate(t.GetCommandsPerSecond()), rate(t.GetEventsPerSecond()), some(t.GetRejectionsPerSecond()), some(t.GetFaultsPerSecond()), rate(t.GetFuelPerSecond()), t.GetEntitiesResident(),
				p50(t.GetQueue()), p99(t.GetQueue()), p50(t.GetGuest()), p99(t.GetGuest()), p50(t.GetCommit()), p99(t.GetCommit()))
		}
	})
	if len(p.hot) == 0 {
		return
	}
	fmt.Fprintln(w)
	cli.Table(w, "HOT ENTITY\tNODE\tCOMMANDS/S\tFUEL OF NODE", func(row func(...any)) {
		for _, e := range p.hot {
			row(e.GetEntityType()+"/"+e.GetEntityId(), e.GetNodeId(), rate(e.GetCommandsPerSecond()), fmt.Sprintf("%.1f %%", 100*e.GetFuelShare()))
		}
	})
}

// rate formats a rate for people.
func rate(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// some formats a rate of something undesirable; empty if it is 0.
func some(v float64) string {
	if v == 0 {
		return ""
	}
	return rate(v)
}

func p50(t *clusterv1.StageTime) string {
	if t == nil {
		return ""
	}
	return latency(t.GetP50().AsDuration())
}

func p99(t *clusterv1.StageTime) string {
	if t == nil {
		return ""
	}
	return latency(t.GetP99().AsDuration())
}

// latency formats a time in its largest unit.
func latency(d time.Duration) string {
	micros := float64(d) / float64(time.Microsecond)
	switch {
	case micros >= 1e6:
		return rate(micros/1e6) + " s"
	case micros >= 1e3:
		return rate(micros/1e3) + " ms"
	}
	return rate(micros) + " µs"
}

// size formats a number of bytes in its largest unit.
func size(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}
