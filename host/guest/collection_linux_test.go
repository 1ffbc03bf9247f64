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

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// stretches is a fuel counter that measures how long a guest runs between two
// accesses of the host to its fuel. Nothing can stop the guest during that
// time.
type stretches struct {
	api.MutableGlobal
	began time.Duration
	took  []time.Duration
	until time.Duration // when the guest is interrupted
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

// BenchmarkSlice measures how long guests of each kind run before they can be
// stopped, in CPU time of their thread, so that other load on the machine does
// not matter. A garbage collection waits no longer than the maximum.
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

// BenchmarkCollection measures how long garbage collections wait for all
// goroutines to stop while guests of a kind run on every processor. It
// alternates that with loops of the host, which can be stopped anywhere, so
// that other load on the machine affects both equally. ms-more is how much
// longer the guests' worst wait is than the worst wait with loops of the host.
// over-15ms is the number of waits longer than 15 ms, and "of" is the number of
// all waits. A wait continues while the guest's thread has no processor, so
// two more figures tell how much of the waiting the machine caused. ms-off is
// the total time for which threads of this process waited for a processor while
// the guests ran, and ms-stolen is the time that the hypervisor took.
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

// compareCollections measures garbage collections while loops of the host run,
// and then while the guests run. start starts the guests.
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

// hostLoop runs an empty loop of the host.
func hostLoop() (stop func()) { return hostWork(func() {}) }

// hostWork calls work in a loop.
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

// waits records how long collections waited for all goroutines to stop.
type waits struct {
	metrics.Float64Histogram
	off, stolen time.Duration
}

// collect runs collections while a loop runs on each processor.
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

// quantile returns the upper bound, in seconds, of the bucket with the
// q-quantile.
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

// over returns how many waits were longer than the given seconds, and how many
// there are.
func (w *waits) over(seconds float64) (over, of uint64) {
	for i, n := range w.Counts {
		if of += n; w.Buckets[i] >= seconds {
			over += n
		}
	}
	return over, of
}

// offProcessor returns how long the threads of this process have waited for a
// processor, in total.
func offProcessor() (sum time.Duration) {
	names, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 { // otherwise the thread has ended
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// stolenTime returns the processor time that the hypervisor took from this
// machine.
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
