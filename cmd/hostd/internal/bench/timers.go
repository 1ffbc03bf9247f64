package bench

import (
	"context"
	"fmt"
	"time"
)

// half measures commands at half of the rate that a stream reaches.
func (b *benchRun) half(ctx context.Context, l Load) (*Result, error) {
	full := b.report.PerSecond(workStream)
	if full == 0 {
		l.Concurrency = b.o.outstanding
		r, err := Stream(ctx, workHalf, b.toNode, l)
		if err != nil {
			return nil, err
		}
		full = r.PerSecond()
	}
	if err := b.calm(ctx, calmPatience); err != nil {
		return nil, err
	}
	l.Concurrency = 4 * b.o.outstanding
	return RunPaced(ctx, workHalf, b.toNode, l, full/2, nil)
}

// calmPatience limits the wait for nodes to finish the work of earlier
// commands.
const calmPatience = 10 * time.Second

// calm waits until the nodes are idle, or until patience is over.
func (b *benchRun) calm(ctx context.Context, patience time.Duration) error {
	const look, idle = time.Second, 100 * time.Millisecond
	pids := b.servers("")
	for end := time.Now().Add(patience); len(pids) > 0 && time.Now().Before(end); {
		before, _ := pids.CPU()
		if err := rest(ctx, look); err != nil {
			return err
		}
		if after, ok := pids.CPU(); !ok || after-before < idle*time.Duration(len(pids)) {
			break
		}
	}
	return ctx.Err()
}

// timers measures how fast many timers that are due at once fire, and the
// latency of other commands during that time.
func (b *benchRun) timers(ctx context.Context, l Load) error {
	l.EntityType, l.Concurrency = "bench-counter", 4*b.o.outstanding
	full := l
	full.Concurrency = b.o.outstanding
	r, err := Stream(ctx, "timers-capacity", b.toNode, full)
	if err != nil {
		return err
	}
	b.add("timers-capacity", r)
	half := r.PerSecond() / 2

	set := l
	set.EntityType, set.Command, set.KeyPrefix, set.Concurrency = "bench-alarm", "set", "alarm-", inFlight
	// Setting the timers, the work that this leaves, and measuring the other
	// commands need less time than this.
	due := time.Now().Add(b.o.warmUp + b.o.duration + calmPatience + 15*time.Second + time.Duration(float64(b.o.timers)/half*float64(4*time.Second)))
	spread := func(i int) []byte {
		return fmt.Appendf(nil, `{"due":%d}`, due.Add(time.Duration(i%1000)*time.Millisecond).UnixMilli())
	}
	if _, err := Each(ctx, b.toNode, set, 0, b.o.timers, spread); err != nil {
		return err
	}
	if err := b.calm(ctx, calmPatience); err != nil {
		return err
	}
	if r, err = RunPaced(ctx, "timers-before", b.toNode, l, half, nil); err != nil {
		return err
	}
	b.add("timers-before", r)
	late := -time.Until(due)
	if late > 0 {
		return fmt.Errorf("workload %s: the timers were due %s before they were all set", workTimers, late.Round(time.Millisecond))
	}
	if err := rest(ctx, time.Until(due)); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	drained := make(chan time.Duration, 1)
	go b.awaitTimers(watching, due, drained)
	l.WarmUp, l.Duration = 0, 2*time.Minute
	var took time.Duration
	more := func() bool {
		select {
		case took = <-drained:
			return false
		default:
			return true
		}
	}
	if r, err = RunPaced(ctx, "timers-during", b.toNode, l, half, more); err != nil {
		return err
	}
	b.add("timers-during", r)
	if took == 0 {
		return fmt.Errorf("workload %s: the timers have not all fired after %s", workTimers, l.Duration)
	}
	b.report.Figure(workTimers, "timers due within one second", float64(b.o.timers), "")
	b.report.Figure(workTimers, "from the first one due until all have fired", took.Seconds(), "s")
	b.report.Figure(workTimers, "commands per second while they fire, half of capacity", half, "")
	b.report.Compare("p99 while timers fire over p99 before", "timers-during", "timers-before", func(l Line) float64 { return l.P99Us })
	return nil
}

// awaitTimers reports when all timers have fired, counted from the first due time.
// It polls rarely, because each poll costs a node some milliseconds.
func (b *benchRun) awaitTimers(ctx context.Context, due time.Time, out chan<- time.Duration) {
	for rest(ctx, 200*time.Millisecond) == nil {
		fired := 0.0
		for _, n := range b.cluster.Nodes {
			if m, err := ReadMetrics(ctx, b.asker, n.Info.API); err == nil {
				fired += m["hostd_timers_fired_total"]
			}
		}
		if fired >= float64(b.o.timers) {
			out <- time.Since(due)
			return
		}
	}
}
