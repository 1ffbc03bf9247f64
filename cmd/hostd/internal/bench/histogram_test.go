package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsCoverWithoutGapOrOverlap(t *testing.T) {
	for b := range bucketCount {
		upper := upperOf(b)
		if got := bucketOf(upper); got != b {
			t.Fatalf("the upper end %d of bucket %d is in bucket %d", upper, b, got)
		}
		if b+1 < bucketCount {
			if got := bucketOf(upper + 1); got != b+1 {
				t.Fatalf("%d, after bucket %d, is in bucket %d", upper+1, b, got)
			}
		}
	}
	if got := bucketOf(longest); got != bucketCount-1 {
		t.Errorf("the longest duration is in bucket %d of %d", got, bucketCount)
	}
}

func TestResolution(t *testing.T) {
	for d := time.Duration(1); d < longest/2; d = d*3/2 + 1 {
		width := upperOf(bucketOf(d)) - d
		if d <= 128*time.Microsecond && width >= time.Microsecond {
			t.Errorf("%s is kept to %s only", d, width)
		}
		if float64(width) > 0.008*float64(d) {
			t.Errorf("%s is kept to %s only", d, width)
		}
	}
}

// The quantiles equal those of the sorted values, to within a bucket.
func TestQuantilesAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var parts [3]Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(rng.Float64()*20)) + 1 // 1 ns to 0.5 s
		all = append(all, d)
		parts[i%3].Record(d)
	}
	var h Histogram
	for i := range parts {
		h.Merge(&parts[i])
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[min(max(int(q*float64(len(all))+0.5), 1), len(all))-1]
		if got := h.Quantile(q); got < want || float64(got-want) > 0.008*float64(want) {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
	if h.Count() != uint64(len(all)) || h.Max() != all[len(all)-1] {
		t.Errorf("count %d, max %s", h.Count(), h.Max())
	}
}

func TestEdges(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 {
		t.Error("nothing recorded, yet something measured")
	}
	h.Record(-1)
	h.Record(time.Hour)
	if h.Quantile(0.5) != 0 || h.Max() != longest {
		t.Errorf("p50 %s, max %s", h.Quantile(0.5), h.Max())
	}
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	for i := range b.N {
		h.Record(time.Duration(i&0xfffff) * 10)
	}
}
