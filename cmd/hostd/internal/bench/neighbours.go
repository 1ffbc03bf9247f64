package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
)

// process is not a command but a CPU-bound process on the same machine, for
// comparison: it shows how much the system's scheduling alone affects the
// neighbours.
const process = "process"

// bombs are the commands of the hostile module, each of which uses as much of
// one resource as it can get.
var bombs = []string{process, "loop", "goroutines", "memory", "recursion", "events", "reply"}

const (
	bombers       = 8    // clients that send bombs one after the other
	neighbourRate = 1000 // measured commands per second
	bombFor       = 5 * time.Second
)

// neighbours measures the commands of one module while clients send runaway
// commands of another module. It measures the commands alone first, and then
// with each kind of bomb separately.
func (b *benchRun) neighbours(ctx context.Context, l Load) error {
	source, err := devcluster.FindSource(b.o.source)
	if err != nil {
		return err
	}
	hostile, err := devcluster.BuildModule(ctx, source, "./cmd/hostd/internal/bench/hostile", b.std.Err)
	if err != nil {
		return err
	}
	if _, err := b.toNode.Upload(ctx, hostile, true); err != nil {
		return err
	}
	l.EntityType, l.Concurrency, l.Duration = "bench-counter", inFlight, bombFor
	if _, err := Each(ctx, b.toNode, l, 0, l.Keys, nil); err != nil {
		return err
	}
	l.WarmUp = 0
	for _, bomb := range bombs {
		alone, beside := "before-"+bomb, "beside-"+bomb
		r, err := RunPaced(ctx, alone, b.toNode, l, neighbourRate, nil)
		if err != nil {
			return err
		}
		b.add(alone, r)
		sent, stop, err := b.bombard(ctx, bomb)
		if err != nil {
			return err
		}
		r, err = RunPaced(ctx, beside, b.toNode, l, neighbourRate, nil)
		stop()
		if err != nil {
			return err
		}
		b.add(beside, r)
		b.report.Compare("p99 during "+bomb+" over p99 before", beside, alone, func(l Line) float64 { return l.P99Us })
		if bomb == process {
			continue
		}
		b.report.Figure(workNeighbours, "bombs of the kind "+bomb+" that were answered", float64(sent.Load()), "")
	}
	return nil
}

// bombard makes clients send bombs, one after the other, each to a new entity,
// because an entity that faults repeatedly is quarantined. stop waits until all
// bombs are answered.
func (b *benchRun) bombard(ctx context.Context, bomb string) (answered *atomic.Uint64, stop func(), err error) {
	if bomb == process {
		c, err := startChild(spinRole, nil, b.std.Err)
		if err != nil {
			return nil, nil, err
		}
		return nil, c.Kill, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	answered = &atomic.Uint64{}
	var clients sync.WaitGroup
	for i := range bombers {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := b.toNode.Send(ctx, client.Command{EntityType: "bench-bomb", EntityID: fmt.Sprintf("%s-%d-%d", bomb, i, n), Name: bomb})
				if err != nil && ctx.Err() == nil {
					answered.Add(1)
				}
			}
		})
	}
	return answered, func() {
		cancel()
		clients.Wait()
	}, nil
}
