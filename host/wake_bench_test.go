package host_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// BenchmarkWake makes entities of 300 events leave memory and queries each
// twice. An operation is the first query, which loads the entity from its
// snapshot. It reports the medians of the first and of the second queries.
func BenchmarkWake(b *testing.B) {
	const events = 300
	n, c := startBenchOn(b, b.TempDir())
	defer n.Stop(b.Context())
	if _, err := c.Upload(b.Context(), testkit.BuildGuest(b, "cmd/hostd/internal/bench/guest"), true); err != nil {
		b.Fatal(err)
	}
	ids := entityIDs(100)
	addEvents(b, c, "bench-counter", ids, events)
	time.Sleep(time.Second) // until everything applied is in the store
	var cold, warm []time.Duration
	ask := func(id string) time.Duration {
		began := time.Now()
		a, err := c.Query(b.Context(), client.Query{EntityType: "bench-counter", EntityID: id, Name: "total"})
		if err != nil || a.Sequence != events {
			b.Fatal(a.Sequence, err)
		}
		return time.Since(began)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		id := ids[i%len(ids)]
		b.StopTimer()
		if _, err := c.Send(b.Context(), client.Command{EntityType: "bench-counter", EntityID: id, Name: "leave"}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		cold = append(cold, ask(id))
		b.StopTimer()
		warm = append(warm, ask(id))
		b.StartTimer()
	}
	b.StopTimer()
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2]) / 1e3
	}
	b.ReportMetric(median(cold), "cold-us")
	b.ReportMetric(median(warm), "warm-us")
	b.ReportMetric(median(cold)-median(warm), "more-us")
}
