package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCPUOfRunningNodesIsReadFromMetrics checks that the processor time of nodes that the run has
// not started comes from their metrics, and is unknown if one of them does not
// report it.
func TestCPUOfRunningNodesIsReadFromMetrics(t *testing.T) {
	taken := 1.5
	tells := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %g\n", cpuSeconds, taken)
	}))
	defer tells.Close()
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for _, c := range []struct {
		of    []string
		nodes int
		want  time.Duration
	}{
		{[]string{tells.URL}, 1, 1500 * time.Millisecond},
		{[]string{tells.URL, tells.URL}, 2, 3 * time.Second},
		{[]string{tells.URL, refuses.URL}, 2, unknownTime},
		{[]string{tells.URL}, 3, unknownTime}, // only one of three nodes reports its metrics
		{nil, 0, unknownTime},
	} {
		b := &benchRun{report: NewReport("test", 0), asker: http.DefaultClient, metricsOf: c.of}
		b.report.Nodes = c.nodes
		if got := b.spent(t.Context(), workUnary); got.servers != c.want {
			t.Errorf("%d nodes, %d asked: %v, wanted %v", c.nodes, len(c.of), got.servers, c.want)
		}
	}
	b := &benchRun{report: NewReport("test", 0), asker: http.DefaultClient, metricsOf: []string{tells.URL}}
	b.report.Nodes = 1
	before := b.spent(t.Context(), workUnary)
	taken += 2
	if cost := b.spent(t.Context(), workUnary).since(before); cost.Servers != 2*time.Second {
		t.Errorf("a workload costs %v, wanted 2 s", cost.Servers)
	}
	taken = 1 // the node was restarted
	if cost := b.spent(t.Context(), workUnary).since(before); cost.Servers != 0 {
		t.Errorf("a start of the node in between costs %v", cost.Servers)
	}
	if cost := b.spent(t.Context(), workUnary).since(spending{servers: unknownTime, client: unknownTime}); cost.Servers != 0 || cost.Client != 0 || cost.Switches != 0 || cost.Nodes != nil {
		t.Errorf("what was not known before costs %+v", cost)
	}
}

func TestAlternatingRunsAreSummed(t *testing.T) {
	all := &Result{}
	for i := 1; i <= 3; i++ {
		turn := &Result{Elapsed: time.Second, All: 10, Errors: 1, FirstError: fmt.Errorf("turn %d", i)}
		for range 5 * i {
			turn.Latency.Record(time.Duration(i) * time.Millisecond)
		}
		all.merge(turn)
	}
	if all.PerSecond() != 10 || all.All != 30 || all.Errors != 3 || all.FirstError.Error() != "turn 1" || all.Latency.Count() != 30 {
		t.Errorf("%v a second, %+v", all.PerSecond(), all)
	}
}

// TestCostsOfEachNode: costs per operation and memory are reported for each
// node that the run started.
func TestCostsOfEachNode(t *testing.T) {
	usage := func(cpu time.Duration, switches, memory uint64) Usage {
		return Usage{CPU: cpu, Switches: switches, Anonymous: memory}
	}
	before := spending{nodes: []nodeUsage{{"n1", usage(time.Second, 10, 1<<20)}, {"n2", usage(time.Second, 10, 1<<20)}}}
	after := spending{nodes: []nodeUsage{{"n1", usage(3*time.Second, 30, 2<<20)}, {"n2", usage(2*time.Second, 5, 3<<20)}}}
	cost := after.since(before)
	cost.addNodes(after.since(before).Nodes)
	r := NewReport("test", 0)
	r.Add(&Result{Workload: workStream, All: 1000}, 3, cost)
	want := []nodeLine{{"n1", 4000, 0.04, 2 << 20}, {"n2", 2000, 0, 3 << 20}}
	if got := r.Results[0].Nodes; !slices.Equal(got, want) {
		t.Errorf("%+v, wanted %+v", got, want)
	}
	var out strings.Builder
	r.Write(&out)
	if !strings.Contains(out.String(), "n2") || !strings.Contains(out.String(), "3.0MiB") {
		t.Errorf("printed:\n%s", out.String())
	}
}
