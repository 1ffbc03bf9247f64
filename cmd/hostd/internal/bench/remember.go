package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	// rememberLook is how often it is looked how many have been started.
	rememberLook = 50 * time.Millisecond
	// rememberPatience bounds the wait for all of them.
	rememberPatience = 30 * time.Minute
)

// remember measures a node that starts again with entities to start: those of
// a type that remembers them, all of one shard.
func (b *benchRun) remember(ctx context.Context, l Load) error {
	l.EntityType, l.Concurrency = "bench-remembered", inFlight
	if _, err := Each(ctx, b.toNode, l, 0, b.o.remembered, nil); err != nil {
		return err
	}
	if err := b.settled(ctx); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, rememberPatience)
	defer cancel()
	var m memory
	for m.Entities < uint64(b.o.remembered) {
		if err := rest(ctx, rememberLook); err != nil {
			return fmt.Errorf("workload %s: %d of %d entities were started: %w", workRemember, m.Entities, b.o.remembered, err)
		}
		var err error
		if m, err = b.memory(ctx, "remember: started"); err != nil {
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
	quiet, err := b.collected(ctx, "remember: idle")
	if err != nil {
		return err
	}
	b.report.Accounts = append(b.report.Accounts, m.Account, quiet.Account)
	report := func(name string, value float64, unit string) { b.report.Figure(workRemember, name, value, unit) }
	report("remembered entities, of one shard", float64(b.o.remembered), "")
	report("from the start of the nodes until they serve", served.Seconds(), "s")
	report("from the start of the nodes until all are in memory", started.Seconds(), "s")
	report("all memory, the most until then", float64(peak)/(1<<20), "MiB")
	return nil
}
