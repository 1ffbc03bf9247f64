package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// starts is how often the workload start measures each kind of start.
const starts = 10

// start measures the time from the start of the nodes' processes until the nodes
// serve all shards: without data, and with the data of many entities.
func (b *benchRun) start(ctx context.Context, l Load) error {
	var first []time.Duration
	for len(first) < starts-1 {
		if err := b.startEmpty(ctx, workStart); err != nil {
			return err
		}
		first = append(first, b.ready)
	}
	if err := b.restartCluster(ctx, workStart); err != nil {
		return err
	}
	first = append(first, b.ready)
	l.EntityType, l.Concurrency = "bench-counter", inFlight
	if _, err := Each(ctx, b.toNode, l, 0, b.o.started, nil); err != nil {
		return err
	}
	if err := b.awaitApplied(ctx); err != nil {
		return err
	}
	var again []time.Duration
	for len(again) < starts {
		if err := b.cluster.Stop(); err != nil {
			return err
		}
		if err := b.startNodes(ctx); err != nil {
			return err
		}
		again = append(again, b.ready)
	}
	for _, r := range []struct {
		name  string
		times []time.Duration
	}{{"first start until the nodes serve", first}, {fmt.Sprintf("restart with %d entities until the nodes serve", b.o.started), again}} {
		slices.Sort(r.times)
		b.report.Figure(workStart, fmt.Sprintf("%s, median of %d", r.name, starts), r.times[starts/2].Seconds(), "s")
		b.report.Figure(workStart, r.name+", longest", r.times[starts-1].Seconds(), "s")
	}
	return nil
}
