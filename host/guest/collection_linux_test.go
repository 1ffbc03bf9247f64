package guest

import (
	"crypto/sha256"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// threadTime is the time that this thread has had a processor.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// stretches is a counter of fuel that times how long a guest runs between two
// looks of the host at it: while it runs nothing can stop it.
type stretches struct {
	api.MutableGlobal
	began time.Duration
	took  []time.Duration
	until time.Duration // by when the guest is interrupted
	guest *Instance
}

func (s *stretches) Set(v uint64) {
	s.MutableGlobal.Set(v)
	s.began = threadTime()
}

func (s *stretches) Get() uint64 {
	if s.began > 0 {
		now := threadTime()
		if len(s.took) < cap(s.took) {
			s.took = append(s.took, now-s.began)
		}
		if s.began = 0; now > s.until {
			s.guest.Interrupt()
		}
	}
	return s.MutableGlobal.Get()
}

// BenchmarkSlice is how long guests of each kind run before they can be stopped,
// in time of their thread, which the machine's other work is no part of: a
// collection waits for no more than the longest.
func BenchmarkSlice(b *testing.B) {
	for _, h := range hogs() {
		b.Run(h.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			m := mustCompile(b, newEngine(b, Options{}), h.guest.build())
			s := &stretches{took: make([]time.Duration, 0, 200_000)}
			for b.Loop() {
				s.until = threadTime() + 200*time.Millisecond
				if err := h.runs(m, func(g *Instance) {
					s.MutableGlobal, s.guest = g.meter.fuel, g
					g.meter.fuel = s
				}, func() bool { return threadTime() > s.until }); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(s.took)
			b.ReportMetric(0, "ns/op")
			for name, at := range map[string]int{"us-median": len(s.took) / 2, "us-p99": len(s.took) * 99 / 100, "us-longest": len(s.took) - 1} {
				b.ReportMetric(float64(s.took[at])/1e3, name)
			}
		})
	}
}

// BenchmarkCollection is how long collections wait for all goroutines to stop
// while guests of a kind run on every processor, and, by turns with it, while
// loops of the host do, which can be stopped anywhere: so that what the
// machine's other work does to both is the same. ms-more is what the guests'
// worst is above the worst beside loops of the host, over-15ms how many waits
// of how many were longer. A wait goes on while the thread of the guest has no
// processor: ms-off is how long the threads of this process waited for one
// beside the guests, in sum, and ms-stolen what the machine's host took.
func BenchmarkCollection(b *testing.B) {
	for _, h := range hogs() {
		b.Run(h.name, func(b *testing.B) {
			m := mustCompile(b, newEngine(b, Options{}), h.guest.build())
			compareCollections(b, func() func() { return hogging(b, h, m) })
		})
	}
	b.Run("digest-of-16MiB", func(b *testing.B) {
		wasm := make([]byte, 16<<20)
		compareCollections(b, func() func() { return hostWork(func() { sha256.Sum256(wasm) }) })
	})
	for language, program := range map[string]string{"c": "wasm-ld", "rust": "/usr/bin/rustc", "go": "go"} {
		b.Run("loop-in-"+language, func(b *testing.B) {
			run := kernelLoop(b, language, program)
			if run == nil {
				b.Skipf("no %s here", program)
			}
			compareCollections(b, run)
		})
	}
}

// compareCollections times collections beside loops of the host and beside
// those that start begins.
func compareCollections(b *testing.B, start func() (stop func())) {
	var host, guest waits
	for b.Loop() {
		host.collect(hostLoop)
		guest.collect(start)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(guest.quantile(0.5)*1e3, "ms-p50")
	b.ReportMetric(guest.quantile(0.99)*1e3, "ms-p99")
	b.ReportMetric(guest.quantile(1)*1e3, "ms-worst")
	b.ReportMetric(host.quantile(0.99)*1e3, "host-ms-p99")
	b.ReportMetric(host.quantile(1)*1e3, "host-ms-worst")
	b.ReportMetric(max(0, guest.quantile(1)-host.quantile(1))*1e3, "ms-more")
	over, of := guest.over(0.015)
	b.ReportMetric(float64(over), "over-15ms")
	b.ReportMetric(float64(of), "of")
	b.ReportMetric(guest.off.Seconds()*1e3, "ms-off")
	b.ReportMetric(guest.stolen.Seconds()*1e3, "ms-stolen")
}

// hostLoop is a loop of the host.
func hostLoop() (stop func()) { return hostWork(func() {}) }

// hostWork does something again and again.
func hostWork(work func()) (stop func()) {
	var end atomic.Bool
	var looping sync.WaitGroup
	looping.Go(func() {
		for !end.Load() {
			work()
		}
	})
	return func() {
		end.Store(true)
		looping.Wait()
	}
}

// waits are how long collections waited for all goroutines to stop.
type waits struct {
	metrics.Float64Histogram
	off, stolen time.Duration
}

// collect collects while something runs on each processor.
func (w *waits) collect(start func() (stop func())) {
	var stops []func()
	for range runtime.GOMAXPROCS(0) {
		stops = append(stops, start())
	}
	before, off, stolen := stoppingTimes(), offProcessor(), stolenTime()
	for range 20 {
		runtime.GC()
	}
	after := stoppingTimes()
	w.off += offProcessor() - off
	w.stolen += stolenTime() - stolen
	for _, stop := range stops {
		stop()
	}
	if w.Counts == nil {
		w.Counts, w.Buckets = make([]uint64, len(after.Counts)), after.Buckets
	}
	for i := range after.Counts {
		w.Counts[i] += after.Counts[i] - before.Counts[i]
	}
}

// quantile is the upper bound, in seconds, of the bucket that it falls into.
func (w *waits) quantile(q float64) float64 {
	total := uint64(0)
	for _, n := range w.Counts {
		total += n
	}
	rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
	for i, n := range w.Counts {
		if seen += n; seen >= rank {
			return w.Buckets[i+1]
		}
	}
	return math.Inf(1)
}

// over counts the waits that were longer than so many seconds, and all of them.
func (w *waits) over(seconds float64) (over, of uint64) {
	for i, n := range w.Counts {
		if of += n; w.Buckets[i] >= seconds {
			over += n
		}
	}
	return over, of
}

// offProcessor is how long the threads of this process have waited for a
// processor, in sum.
func offProcessor() (sum time.Duration) {
	names, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 { // or the thread has ended
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// stolenTime is how long the processors of this machine were not there for it.
func stolenTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		panic(err)
	}
	fields := strings.Fields(string(text))
	n, _ := strconv.ParseInt(fields[min(8, len(fields)-1)], 10, 64)
	return time.Duration(n) * 10 * time.Millisecond
}

func stoppingTimes() *metrics.Float64Histogram {
	samples := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(samples)
	h := samples[0].Value.Float64Histogram()
	return &metrics.Float64Histogram{Counts: slices.Clone(h.Counts), Buckets: h.Buckets}
}
