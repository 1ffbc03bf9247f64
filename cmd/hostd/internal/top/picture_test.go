package top

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

func of(node string, commands float64, took *clusterv1.StageTime) *clusterv1.WatchStatsResponse {
	return &clusterv1.WatchStatsResponse{
		NodeId: node, Node: &clusterv1.NodeStats{CommandsPerSecond: commands, MemoryBytes: 3 << 20},
		Types: []*clusterv1.TypeStats{{EntityType: "order", CommandsPerSecond: commands, EventsPerSecond: 2 * commands, EntitiesResident: 5, Queue: took}, {EntityType: "of " + node}},
	}
}

func stageTime(p50, p99 time.Duration) *clusterv1.StageTime {
	return &clusterv1.StageTime{P50: durationpb.New(p50), P99: durationpb.New(p99)}
}

// TestNodeStatsAreSummed checks that rates are added and latencies are the
// maximum, that a node that does not answer is reported as missing until it
// does, and that its old statistics are dropped eventually.
func TestNodeStatsAreSummed(t *testing.T) {
	p, now := newPicture(time.Second), time.Unix(1000, 0)
	written := func() string {
		var out strings.Builder
		p.write(&out, 0)
		p.printMissing(&out)
		return strings.Join(strings.Fields(out.String()), " ")
	}
	p.take(of("n1", 10, stageTime(5*time.Microsecond, 1500*time.Microsecond)), now)
	p.take(of("n2", 2.5, stageTime(20*time.Millisecond, 2500*time.Millisecond)), now)
	p.take(of("n3", 0, nil), now)
	sum := p.sums()[0]
	if sum.GetEntityType() != "order" || sum.GetCommandsPerSecond() != 12.5 || sum.GetEventsPerSecond() != 25 || sum.GetEntitiesResident() != 15 || sum.GetQueue().GetP99().AsDuration() != 2500*time.Millisecond || len(p.sums()) != 4 {
		t.Errorf("%v of %d", sum, len(p.sums()))
	}
	if got := written(); !strings.Contains(got, "n2 2.5") || !strings.Contains(got, "20 ms 2.5 s") || !strings.Contains(got, "3.0 MiB") || strings.Contains(got, "did not answer") {
		t.Error(got)
	}
	p.take(&clusterv1.WatchStatsResponse{MissingNodes: []string{"n2"}}, now)
	if got := written(); strings.Contains(got, "n2 2.5") || !strings.Contains(got, "did not answer: n2") || p.sums()[0].GetCommandsPerSecond() != 10 {
		t.Error(got)
	}
	p.take(&clusterv1.WatchStatsResponse{LeftNodes: []string{"n2", "n3"}}, now)
	if got := written(); strings.Contains(got, "n2") || strings.Contains(got, "n3") || !strings.Contains(got, "n1 10") {
		t.Error("nodes that have left:", got)
	}
	p.take(of("n2", 1, nil), now)
	if got := written(); !strings.Contains(got, "n2 1.0") || strings.Contains(got, "did not answer") {
		t.Error(got)
	}
	p.take(of("n1", 1, nil), now.Add(time.Minute))
	if got := written(); strings.Contains(got, "n2") || !strings.Contains(got, "n1 1.0") {
		t.Error(got)
	}
}

// TestPictureFitsScreen checks that if there are many types, only the types
// with the most commands are shown.
func TestPictureFitsScreen(t *testing.T) {
	p := newPicture(time.Second)
	m := of("n1", 1, nil)
	for i := range 100 {
		m.Types = append(m.Types, &clusterv1.TypeStats{EntityType: strings.Repeat("t", i+1), CommandsPerSecond: float64(100 + i)})
	}
	p.take(m, time.Unix(1000, 0))
	var out strings.Builder
	p.write(&out, 24)
	if lines := strings.Count(out.String(), "\n"); lines > 22 || lines < 15 || !strings.Contains(out.String(), "\n"+strings.Repeat("t", 100)+" ") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
}
