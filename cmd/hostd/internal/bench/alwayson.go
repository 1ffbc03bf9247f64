package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	// alwaysOnPoll is the interval between two counts of the started entities.
	alwaysOnPoll = 50 * time.Millisecond
	// alwaysOnPatience limits the wait until all entities have started.
	alwaysOnPatience = 30 * time.Minute
)

// alwaysOn measures the restart of a node with many always-on entities in one
// shard.
func (b *benchRun) alwaysOn(ctx context.Context, l Load) error {
	l.EntityType, l.Concurrency = "bench-remembered", inFlight
	if _, err := Each(ctx, b.toNode, l, 0, b.o.alwaysOn, nil); err != nil {
		return err
	}
	if err := b.awaitApplied(ctx); err != nil {
		return err
	}
	if err := b.cluster.Stop(); err != nil {
		return err
	}
	began := time.Now()
	if err := b.startNodes(ctx); err != nil {
		return err
	}
	served := time.Since(began)
	ctx, cancel := context.WithTimeout(ctx, alwaysOnPatience)
	defer cancel()
	var m memory
	for m.Entities < uint64(b.o.alwaysOn) {
		if err := rest(ctx, alwaysOnPoll); err != nil {
			return fmt.Errorf("workload %s: only %d of %d entities started: %w", workAlwaysOn, m.Entities, b.o.alwaysOn, err)
		}
		var err error
		if m, err = b.memory(ctx, "always-on: started"); err != nil {
			return err
		}
	}
	started := time.Since(began)
	var peak uint64
	for _, n := range b.cluster.Nodes {
		u, err := ReadUsage(n.PID)
		if err != nil {
			return err
		}
		peak += u.Peak
	}
	quiet, err := b.awaitIdleMemory(ctx, "always-on: idle")
	if err != nil {
		return err
	}
	b.report.Accounts = append(b.report.Accounts, m.Account, quiet.Account)
	report := func(name string, value float64, unit string) { b.report.Figure(workAlwaysOn, name, value, unit) }
	report("always-on entities, of one shard", float64(b.o.alwaysOn), "")
	report("from the start of the nodes until they serve", served.Seconds(), "s")
	report("from the start of the nodes until all are resident", started.Seconds(), "s")
	report("peak of all memory until then", float64(peak)/(1<<20), "MiB")
	return nil
}
