package entity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/request"
)

// counted returns the histograms of a table by type and stage.
func counted(t *testing.T, b *entity.StageTable) map[[2]string]*dto.Histogram {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(b)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[[2]string]*dto.Histogram{}
	for _, f := range families {
		for _, m := range f.Metric {
			out[[2]string{m.Label[0].GetValue(), m.Label[1].GetValue()}] = m.Histogram
		}
	}
	return out
}

// TestStageDurationsAreObserved checks that the stages queue, guest and
// commit begin and end at the right moments, and that the counts of all
// executors for a type are summed in one series.
func TestStageDurationsAreObserved(t *testing.T) {
	b := entity.NewStageTable()
	executors := []*request.Took{b.Of("order"), b.Of("order")}
	at := time.Unix(1000, 0)
	for _, took := range executors {
		l := request.ExecutorState{Since: at}
		l.RecordCall(took, nil, at.Add(time.Millisecond), at.Add(11*time.Millisecond))
		l.RecordCommit(at.Add(111 * time.Millisecond))
	}
	refused := request.ExecutorState{Since: at}
	refused.RecordCall(executors[0], nil, at.Add(time.Millisecond), at.Add(11*time.Millisecond))
	var answered request.ExecutorState // answered from the window, without a guest call
	answered.RecordCommit(at)
	all := counted(t, b)
	for stage, want := range map[string]struct {
		n   uint64
		sum string
	}{"queue": {3, "0.003"}, "guest": {3, "0.030"}, "commit": {2, "0.200"}} {
		h := all[[2]string{"order", stage}]
		if h.GetSampleCount() != want.n || fmt.Sprintf("%.3f", h.GetSampleSum()) != want.sum {
			t.Errorf("%s: %d in %v s, want %d in %s", stage, h.GetSampleCount(), h.GetSampleSum(), want.n, want.sum)
		}
	}
	if len(all) != 3 {
		t.Errorf("series: %v", all)
	}
}

// TestStageSeriesAreBounded checks that at most a hundred types have series of their
// own, and that the others are counted together.
func TestStageSeriesAreBounded(t *testing.T) {
	b := entity.NewStageTable()
	at := time.Unix(1000, 0)
	for range 2 { // one for each executor
		for i := range 150 {
			l := request.ExecutorState{Since: at}
			l.RecordCall(b.Of(fmt.Sprint("type", i)), nil, at, at)
		}
	}
	all := counted(t, b)
	var sum uint64
	for key, h := range all {
		if key[1] == "guest" {
			sum += h.GetSampleCount()
		}
	}
	if others := all[[2]string{"", "guest"}].GetSampleCount(); len(all) != 3*101 || sum != 300 || others != 100 {
		t.Errorf("%d series, %d commands, %d of the others", len(all), sum, others)
	}
}

func TestStageTableMayBeNil(t *testing.T) {
	var b *entity.StageTable
	var l request.ExecutorState
	l.RecordCall(b.Of("order"), nil, time.Now(), time.Now())
	l.RecordCommit(time.Now())
}

func TestCountingAllocatesNothing(t *testing.T) {
	took := entity.NewStageTable().Of("order")
	at := time.Unix(1000, 0)
	if n := testing.AllocsPerRun(1000, func() {
		l := request.ExecutorState{Since: at}
		l.RecordCall(took, nil, at.Add(time.Millisecond), at.Add(2*time.Millisecond))
		l.RecordCommit(at.Add(3 * time.Millisecond))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
