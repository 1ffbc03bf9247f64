package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
		{[]string{tells.URL}, 3, unknownTime}, // the others aren't asked
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
	if cost := b.spent(t.Context(), workUnary).since(spending{servers: unknownTime, client: unknownTime}); cost != (Cost{}) {
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
