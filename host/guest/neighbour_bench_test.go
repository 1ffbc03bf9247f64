package guest

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkNeighbour measures a command of one guest while other guests loop
// on the given number of goroutines.
func BenchmarkNeighbour(b *testing.B) {
	for _, loops := range []int{0, 1, runtime.GOMAXPROCS(0), 8} {
		b.Run(map[bool]string{true: "alone", false: "beside-loops"}[loops == 0]+"-"+string(rune('0'+loops)), func(b *testing.B) {
			for range loops {
				stop := hogging(b, hogs()[0], mustCompile(b, newEngine(b, Options{}), hogs()[0].guest.build()))
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
				runtime.Gosched() // like an executor that waits for its next command
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100]), "ns-p99")
			b.ReportMetric(float64(took[len(took)-1])/1e6, "ms-worst")
		})
	}
}
