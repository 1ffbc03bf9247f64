package bench

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
)

// life measures a part of an entity's life on new nodes.
func (b *benchRun) life(ctx context.Context, workload string) error {
	l := Load{Command: "add", Payload: benchPayload(b.o.payload), KeyPrefix: workload + "-", Keys: b.o.keys, Concurrency: 1, WarmUp: b.o.warmUp, Duration: b.o.duration}
	if workload == workStart {
		return b.start(ctx, l)
	}
	if err := b.restartCluster(ctx, workload); err != nil {
		return err
	}
	switch workload {
	case workEntities:
		return b.entities(ctx, l)
	case workWake:
		return b.wake(ctx, l)
	case workState:
		return b.state(ctx, l)
	case workAlwaysOn:
		return b.alwaysOn(ctx, l)
	case workNeighbours:
		return b.neighbours(ctx, l)
	}
	return b.timers(ctx, l)
}

// restartCluster restarts the nodes without data and uploads the module of these
// workloads.
func (b *benchRun) restartCluster(ctx context.Context, workload string) error {
	if b.guest == nil {
		source, err := devcluster.FindSource(b.o.source)
		if err != nil {
			return err
		}
		if b.guest, err = devcluster.BuildModule(ctx, source, "./cmd/hostd/internal/bench/guest", b.std.Err); err != nil {
			return err
		}
	}
	if err := b.startEmpty(ctx, workload); err != nil {
		return err
	}
	if _, err := b.toNode.Upload(ctx, b.guest, true); err != nil {
		return err
	}
	return b.describe(ctx)
}

// startEmpty restarts the nodes without data.
func (b *benchRun) startEmpty(ctx context.Context, workload string) error {
	if err := b.cluster.Stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.dir, b.data)); err != nil {
		return err
	}
	b.data = "data-" + workload
	return b.startNodes(ctx)
}

// add reports a result under a separate name.
func (b *benchRun) add(name string, r *Result) {
	r.Workload = name
	b.report.Add(r, b.report.Replication, Cost{})
}

// inFlight is the number of concurrent commands while a measurement is
// prepared.
const inFlight = 1024

// wake measures the time to load an entity from its snapshot.
func (b *benchRun) wake(ctx context.Context, l Load) error {
	l.EntityType, l.Keys = "bench-counter", 100
	const events = 300
	for i := range l.Keys {
		if err := Fill(ctx, b.toNode, l, l.KeyPrefix+strconv.Itoa(i), events); err != nil {
			return err
		}
	}
	if err := b.awaitApplied(ctx); err != nil {
		return err
	}
	before, err := ReadMetrics(ctx, b.asker, b.cluster.Nodes[0].Info.API)
	if err != nil {
		return err
	}
	l.Command, l.Payload = "leave", nil
	cold, warm, err := Wake(ctx, b.toNode, l, "total")
	if err != nil {
		return err
	}
	b.add("wake-cold", cold)
	b.add("wake-warm", warm)
	told, err := ReadMetrics(ctx, b.asker, b.cluster.Nodes[0].Info.API)
	if err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	report := func(name string, value float64, unit string) { b.report.Figure(workWake, name, value, unit) }
	report("snapshots of "+strconv.Itoa(l.Keys)+" entities with "+strconv.Itoa(events)+" events", before["hostd_snapshots_total"], "")
	report("activations on the first node", told["hostd_entity_loads_total"]-before["hostd_entity_loads_total"], "")
	report("activation, p50: first queries minus second queries of the same entities", ms(cold.Latency.Quantile(.5)-warm.Latency.Quantile(.5)), "ms")
	report("activation, p90: first queries minus second queries of the same entities", ms(cold.Latency.Quantile(.9)-warm.Latency.Quantile(.9)), "ms")
	return nil
}

// state measures commands on small and on large states, with one caller each,
// alternating.
func (b *benchRun) state(ctx context.Context, l Load) error {
	l.EntityType, l.Keys = "bench-book", 8
	page := func(bytes int) func(int) []byte {
		return func(int) []byte { return []byte(`{"page":"` + strings.Repeat("x", bytes) + `"}`) }
	}
	small, large := l, l
	small.KeyPrefix, large.KeyPrefix = "small-", "large-"
	write := func(l Load, pages, bytes int) error {
		l.Command, l.Concurrency = "write", l.Keys
		for range pages {
			if _, err := Each(ctx, b.toNode, l, 0, l.Keys, page(bytes)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(small, 1, 1000); err != nil {
		return err
	}
	if err := write(large, 20, 50_000); err != nil {
		return err
	}
	before, err := ReadMetrics(ctx, b.asker, b.cluster.Nodes[0].Info.API)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		name string
		load Load
	}{{"state-1KB", small}, {"state-1MB", large}} {
		r, err := Unary(ctx, "", b.toNode, w.load)
		if err != nil {
			return err
		}
		b.add(w.name, r)
	}
	told, err := ReadMetrics(ctx, b.asker, b.cluster.Nodes[0].Info.API)
	if err != nil {
		return err
	}
	b.report.Figure(workState, "snapshots while they were measured", told["hostd_snapshots_total"]-before["hostd_snapshots_total"], "")
	b.report.Compare("p50 of a command, 1 MB of state over 1 KB", "state-1MB", "state-1KB", func(l Line) float64 { return l.P50Us })
	b.report.Compare("mean of a command, 1 MB of state over 1 KB", "state-1MB", "state-1KB", func(l Line) float64 { return l.MeanUs })
	b.report.Compare("p99 of a command, 1 MB of state over 1 KB", "state-1MB", "state-1KB", func(l Line) float64 { return l.P99Us })
	return nil
}
