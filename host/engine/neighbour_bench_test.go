package engine

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
)

// hogs are guests whose commands never end, each in a way of its own.
func hogs() map[string]*testGuest {
	void := []byte{blockVoid}
	forever := func(code ...[]byte) *testGuest {
		return &testGuest{memory: memoryBounds(1000, 1024), bodies: map[string][]byte{
			abi.ExportHandle: cat(op(opLoop, void), cat(code...), op(opBr, uleb(0)), []byte{opEnd}, op(opUnreachable))}}
	}
	sqrt := cat(op(opF64Const, make([]byte, 8)), op(opF64Sqrt), op(opDrop))
	chase := cat(get(1), i32c(65*64+1), op(opI32Add), i32c(60<<20), op(0x70), op(opLocalTee, uleb(1)), op(opI32Load, aligned(2)), get(1), op(opI32Add), op(opLocalSet, uleb(1)))
	return map[string]*testGuest{
		"empty":       forever(),
		"heavy":       forever(slices.Repeat(sqrt, 5000)),
		"cache-miss":  forever(chase),
		"memory.fill": forever(i32c(0), i32c(7), i32c(62<<20), []byte{opMisc, miscMemoryFill, 0}),
		"memory.copy": forever(i32c(1), i32c(0), i32c(62<<20), []byte{opMisc, miscMemoryCopy, 0, 0}),
	}
}

// hog calls a guest that never ends on a goroutine of its own until stop.
func hog(b *testing.B, guest *testGuest, limits abi.Limits) (stop func()) {
	g := start(b, Options{Limits: limits}, guest)
	g.SetBudgets(Budgets{Command: unlimited})
	var looping sync.WaitGroup
	looping.Go(func() {
		if _, err := g.Handle(0, make([]byte, 64), Env{}); !errors.Is(err, ErrInterrupted) {
			b.Errorf("the loop ended with %v", err)
		}
	})
	return func() {
		g.Interrupt()
		looping.Wait()
	}
}

// BenchmarkSlice is how long a guest of each kind runs before it can be
// stopped: a collection waits for no more than that. What is beyond the median
// is the machine's doing: it runs other processes too.
func BenchmarkSlice(b *testing.B) {
	for name, guest := range hogs() {
		b.Run(name, func(b *testing.B) {
			k := openKernel(b, newEngine(b, Options{}), guest.build(), true)
			handle := k.guest.ExportedFunction(abi.ExportHandle)
			stack := make([]uint64, 3)
			var took []time.Duration
			for b.Loop() {
				// A chunk of a bulk operation may be a slice and more.
				k.meter.open(max(sliceFuel, bulkChunk/bytesPerUnit+1000))
				k.meter.stack.Set(stackBytes)
				clear(stack)
				began := time.Now()
				err := handle.CallWithStack(k.ctx, stack)
				took = append(took, time.Since(began))
				k.instance.endTurn()
				var spent exhausted
				if !errors.As(err, &spent) || spent.kind != FaultFuel {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "us-median")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "us-p99")
		})
	}
}

// collector is what a process does while collections are timed.
type collector struct {
	name  string
	start func(*testing.B) (stop func())
	sum   *metrics.Float64Histogram // of the times until all had stopped
}

// BenchmarkCollection is how long collections wait for all goroutines to stop:
// while nothing runs, while goroutines of the host loop on every processor,
// which can be stopped anywhere, and while guests do. All have their turns in
// one run, so that what the machine's other processes do to them is the same:
// what a guest adds is the difference to the loop of the host.
func BenchmarkCollection(b *testing.B) {
	kinds := []*collector{
		{name: "nothing", start: func(*testing.B) func() { return func() {} }},
		{name: "host", start: hostLoops},
	}
	for name, guest := range hogs() {
		kinds = append(kinds, &collector{name: name, start: func(b *testing.B) func() {
			var stops []func()
			for range runtime.GOMAXPROCS(0) {
				stops = append(stops, hog(b, guest, abi.DefaultLimits()))
			}
			return func() {
				for _, stop := range stops {
					stop()
				}
			}
		}})
	}
	for b.Loop() {
		for _, k := range kinds {
			stop := k.start(b)
			before := stoppingTimes()
			for range 50 {
				runtime.GC()
			}
			k.add(before, stoppingTimes())
			stop()
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, k := range kinds {
		for _, q := range []float64{0.5, 0.99, 1} {
			b.ReportMetric(k.quantile(q)*1e3, fmt.Sprintf("ms-%s-p%v", k.name, 100*q))
		}
	}
}

// hostLoops is a loop of the host on every processor.
func hostLoops(*testing.B) func() {
	var end atomic.Bool
	var looping sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		looping.Go(func() {
			for !end.Load() {
			}
		})
	}
	return func() {
		end.Store(true)
		looping.Wait()
	}
}

func (k *collector) add(before, after *metrics.Float64Histogram) {
	if k.sum == nil {
		k.sum = &metrics.Float64Histogram{Counts: make([]uint64, len(after.Counts)), Buckets: after.Buckets}
	}
	for i := range after.Counts {
		k.sum.Counts[i] += after.Counts[i] - before.Counts[i]
	}
}

// quantile is the upper bound of the bucket that it falls into.
func (k *collector) quantile(q float64) float64 {
	total := uint64(0)
	for _, n := range k.sum.Counts {
		total += n
	}
	rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
	for i, n := range k.sum.Counts {
		if seen += n; seen >= rank {
			return k.sum.Buckets[i+1]
		}
	}
	return math.Inf(1)
}

func stoppingTimes() *metrics.Float64Histogram {
	samples := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(samples)
	h := samples[0].Value.Float64Histogram()
	return &metrics.Float64Histogram{Counts: slices.Clone(h.Counts), Buckets: h.Buckets}
}

// BenchmarkNeighbour is a command of one guest while others loop on as many
// goroutines as there are processors.
func BenchmarkNeighbour(b *testing.B) {
	for _, loops := range []int{0, 1, runtime.GOMAXPROCS(0), 8} {
		b.Run(map[bool]string{true: "alone", false: "beside-loops"}[loops == 0]+"-"+string(rune('0'+loops)), func(b *testing.B) {
			for range loops {
				stop := hog(b, endless(), abi.DefaultLimits())
				defer stop()
			}
			g := start(b, Options{}, &testGuest{})
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := g.Handle(0, nil, Env{}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				runtime.Gosched() // as a lane that waits for its next command
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100]), "ns-p99")
			b.ReportMetric(float64(took[len(took)-1])/1e6, "ms-worst")
		})
	}
}
