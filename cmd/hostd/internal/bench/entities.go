package bench

import (
	"context"
	"time"
)

// memory is the memory of all nodes together.
type memory struct {
	Account
	heap        float64 // Go's heap in use
	spare       float64 // Go's free memory that is not returned to the system
	collections float64 // number of garbage collections
}

func (b *benchRun) memory(ctx context.Context, when string) (memory, error) {
	var used Usage
	all := Metrics{}
	for _, n := range b.cluster.Nodes {
		u, err := ReadUsage(n.PID)
		if err != nil {
			return memory{}, err
		}
		told, err := ReadMetrics(ctx, b.asker, n.Info.API)
		if err != nil {
			return memory{}, err
		}
		used.Anonymous += u.Anonymous
		used.Files += u.Files
		for name, value := range told {
			all[name] += value
		}
	}
	return memory{
		Account: NewAccount(when, used, all),
		heap:    all["go_memstats_heap_alloc_bytes"], spare: all["go_memstats_heap_idle_bytes"] - all["go_memstats_heap_released_bytes"], collections: all["go_gc_duration_seconds_count"],
	}, nil
}

// awaitIdleMemory waits until the nodes have finished all work, including
// the store's tables, and have then collected their garbage, which Go does
// every two minutes by itself. Then it waits for giveBack further polls, in
// which the nodes return the freed memory.
func (b *benchRun) awaitIdleMemory(ctx context.Context, when string) (m memory, err error) {
	var pids Processes
	for _, n := range b.cluster.Nodes {
		pids = append(pids, n.PID)
	}
	const (
		look, idle  = 2 * time.Second, 200 * time.Millisecond
		giveBack    = 10 // polls
		spareAtRest = 32 << 20
	)
	began := -1.0 // number of collections when they became idle
	waited := 0   // polls since the collection
	for {
		before, _ := pids.CPU()
		if err := rest(ctx, look); err != nil {
			return m, err
		}
		if m, err = b.memory(ctx, when); err != nil {
			return m, err
		}
		switch after, _ := pids.CPU(); {
		case after-before > idle*time.Duration(len(pids)) && began < 0:
		case began < 0:
			began = m.collections
		case m.collections < began+float64(len(pids)):
		case m.spare < spareAtRest*float64(len(pids)) || waited == giveBack:
			return m, nil
		default:
			waited++
		}
	}
}

// awaitApplied waits until the nodes have written everything that they applied.
func (b *benchRun) awaitApplied(ctx context.Context) error {
	for {
		backlog := 0.0
		for _, n := range b.cluster.Nodes {
			m, err := ReadMetrics(ctx, b.asker, n.Info.API)
			if err != nil {
				return err
			}
			backlog += m["hostd_apply_backlog_bytes"]
		}
		if err := rest(ctx, time.Second); err != nil || backlog == 0 {
			return err
		}
	}
}

// entities measures many entities in memory and out of memory.
func (b *benchRun) entities(ctx context.Context, l Load) error {
	l.EntityType = "bench-counter"
	all, few, first := b.o.entities, min(1000, b.o.entities), max(b.o.entities/5, 1000)
	stream := l
	stream.Concurrency = inFlight
	leave := stream
	leave.Command, leave.Payload = "leave", nil

	one := l
	one.Keys = few
	r, err := Unary(ctx, "", b.toNode, one)
	if err != nil {
		return err
	}
	b.add("1000-entities", r)

	// Earlier entities fill the bounded caches, so that their size is not
	// attributed to the measured entities.
	stream.KeyPrefix, leave.KeyPrefix = "before-", "before-"
	for _, l := range []Load{stream, leave} {
		if _, err := Each(ctx, b.toNode, l, 0, first, nil); err != nil {
			return err
		}
	}
	stream.KeyPrefix, leave.KeyPrefix = l.KeyPrefix, l.KeyPrefix
	none, err := b.awaitIdleMemory(ctx, "before")
	if err != nil {
		return err
	}
	made, err := Each(ctx, b.toNode, stream, 0, all, nil)
	if err != nil {
		return err
	}
	if err := b.awaitApplied(ctx); err != nil {
		return err
	}
	in, err := b.memory(ctx, "at once")
	if err != nil {
		return err
	}
	b.add("create", made)
	quiet, err := b.awaitIdleMemory(ctx, "once idle")
	if err != nil {
		return err
	}
	if err := b.commandsAmong(ctx, one, all); err != nil {
		return err
	}
	left, err := Each(ctx, b.toNode, leave, 0, all, nil)
	if err != nil {
		return err
	}
	out, err := b.awaitIdleMemory(ctx, "all left")
	if err != nil {
		return err
	}
	b.reportEntities(none, in, quiet, out, first+all, made.Again+left.Again)
	return nil
}

// commandsAmong measures commands while there are many entities: first
// commands to the entities that were measured alone, then commands to any
// entity.
func (b *benchRun) commandsAmong(ctx context.Context, one Load, all int) error {
	r, err := Unary(ctx, "", b.toNode, one)
	if err != nil {
		return err
	}
	b.add("many-entities", r)
	one.Keys, one.Scatter = all, true
	if r, err = Unary(ctx, "", b.toNode, one); err != nil {
		return err
	}
	b.add("any-entity", r)
	p50 := func(l Line) float64 { return l.P50Us }
	b.report.Compare("p50 of a command, many entities over 1,000", "many-entities", "1000-entities", p50)
	b.report.Compare("p50 of a command to any of many entities, over 1,000", "any-entity", "1000-entities", p50)
	return nil
}

func (b *benchRun) reportEntities(none, in, quiet, out memory, stored int, again uint64) {
	report := func(name string, value float64, unit string) { b.report.Figure(workEntities, name, value, unit) }
	perGiB := func(m memory) float64 { return float64(m.Entities) / float64(m.Anonymous) * (1 << 30) }
	added := func(m memory) float64 {
		return float64(m.Entities-none.Entities) / (float64(m.Resident) - float64(none.Resident)) * (1 << 30)
	}
	b.report.Accounts = append(b.report.Accounts, none.Account, in.Account, quiet.Account, out.Account)
	report("entities in the journal", float64(stored), "")
	report("commands sent again because they exceeded their deadline", float64(again), "")
	report("entities per GiB of all memory, at once", in.EntitiesPerGiB, "")
	report("entities per GiB of all memory, once idle", quiet.EntitiesPerGiB, "")
	report("entities per GiB of memory without files, at once", perGiB(in), "")
	report("entities per GiB of memory without files, once idle", perGiB(quiet), "")
	report("entities per GiB of added memory, at once", added(in), "")
	report("entities per GiB of added memory, once idle", added(quiet), "")
	passive := float64(stored) - float64(none.Entities)
	report("Go's heap per passive entity", (out.heap-none.heap)/passive, "bytes")
	report("memory without files per passive entity", (float64(out.Anonymous)-float64(none.Anonymous))/passive, "bytes")
}
