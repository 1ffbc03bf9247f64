package telemetry_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/hostd/hostd/host/telemetry"
)

func opts(classic []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: "hostd_probe_seconds", Help: "A probe.", Buckets: classic}
}

// collected returns the only metric of a collector.
func collected(t *testing.T, c prometheus.Collector) *dto.Histogram {
	t.Helper()
	out := make(chan prometheus.Metric, 1)
	c.Collect(out)
	var m dto.Metric
	if err := (<-out).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram
}

// native returns the counts of a native histogram by bucket.
func native(h *dto.Histogram) map[int]int64 {
	counts, key, n := map[int]int64{}, 0, int64(0)
	deltas := h.PositiveDelta
	for _, span := range h.PositiveSpan {
		key += int(span.GetOffset())
		for range span.GetLength() {
			if n += deltas[0]; n != 0 {
				counts[key] = n
			}
			deltas = deltas[1:]
			key++
		}
	}
	return counts
}

// TestHistogramMatchesPrometheus: a Histogram produces the same classic and native
// buckets as the Prometheus library, for durations at and next to every bound.
func TestHistogramMatchesPrometheus(t *testing.T) {
	for name, classic := range map[string][]float64{
		"latencies": telemetry.LatencyBuckets(), "wide": prometheus.ExponentialBuckets(1e-6, 8, 12), "few": {0.1}, "close": {1, 1.01, 1.02, 1.03}, "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := opts(classic)
			theirs.NativeHistogramBucketFactor, theirs.NativeHistogramZeroThreshold = 1.1, math.Ldexp(1, -20)
			want, vec := prometheus.NewHistogram(theirs), telemetry.NewHistogramVec(opts(classic), nil)
			observe := func(d time.Duration) {
				if d >= 0 && d <= 4096*time.Second {
					want.Observe(float64(d) / 1e9)
					vec.Alone().Observe(d)
				}
			}
			for i := -21; i <= 12; i++ {
				for j := range 8 {
					edge := time.Duration(1e9 * math.Exp2(float64(i)+float64(j)/8))
					for d := edge - 2; d <= edge+2; d++ {
						observe(d)
					}
				}
			}
			for _, b := range classic {
				for d := time.Duration(b*1e9) - 2; d <= time.Duration(b*1e9)+2; d++ {
					observe(d)
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range 20_000 {
				observe(time.Duration(math.Exp(r.Float64() * 29)))
			}
			got, has := collected(t, vec), collected(t, want)
			if got.GetSampleCount() != has.GetSampleCount() || math.Abs(got.GetSampleSum()-has.GetSampleSum()) > 1e-6*has.GetSampleSum() {
				t.Errorf("%d durations of %v s, want %d of %v s", got.GetSampleCount(), got.GetSampleSum(), has.GetSampleCount(), has.GetSampleSum())
			}
			if got.GetSchema() != has.GetSchema() || got.GetZeroThreshold() != has.GetZeroThreshold() || got.GetZeroCount() != has.GetZeroCount() {
				t.Errorf("schema %d, %d below %v; want %d, %d below %v", got.GetSchema(), got.GetZeroCount(), got.GetZeroThreshold(), has.GetSchema(), has.GetZeroCount(), has.GetZeroThreshold())
			}
			if got, want := fmt.Sprint(native(got)), fmt.Sprint(native(has)); got != want {
				t.Errorf("native buckets\n%s\nwant\n%s", got, want)
			}
			if len(got.Bucket) != len(has.Bucket) {
				t.Fatalf("%d classic buckets, want %d", len(got.Bucket), len(has.Bucket))
			}
			for i, b := range has.Bucket {
				if g := got.Bucket[i]; g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
					t.Errorf("%d up to %v, want %d up to %v", g.GetCumulativeCount(), g.GetUpperBound(), b.GetCumulativeCount(), b.GetUpperBound())
				}
			}
		})
	}
}

// TestOutOfRangeDurationsAreCounted: negative durations and durations beyond all
// bounds are counted too.
func TestOutOfRangeDurationsAreCounted(t *testing.T) {
	vec := telemetry.NewHistogramVec(opts(telemetry.LatencyBuckets()), nil)
	for _, d := range []time.Duration{math.MinInt64, -1, 0, math.MaxInt64, 4096*time.Second + 1, 8192 * time.Second} {
		vec.Alone().Observe(d)
	}
	h := collected(t, vec)
	sum := int64(h.GetZeroCount())
	for _, n := range native(h) {
		sum += n
	}
	if h.GetSampleCount() != 6 || sum != 6 || h.GetZeroCount() != 3 || h.Bucket[0].GetCumulativeCount() != 3 || h.Bucket[len(h.Bucket)-1].GetCumulativeCount() != 3 {
		t.Errorf("%v", h)
	}
}

// TestHistogramIsServedInEachFormat: the classic buckets are served as text, with
// exemplars in OpenMetrics, and the native ones in the binary format.
func TestHistogramIsServedInEachFormat(t *testing.T) {
	vec := telemetry.NewHistogramVec(opts(telemetry.LatencyBuckets()), []string{"procedure"})
	vec.Of("a").Observe(15 * time.Microsecond)
	vec.Of("b").ObserveTraced(time.Minute, [16]byte{15: 0x2a})
	vec.Of("b").ObserveTraced(15*time.Microsecond, [16]byte{15: 0x2b})
	vec.Of("b").ObserveTraced(15*time.Microsecond, [16]byte{}) // without a trace
	r := telemetry.NewRegistry(telemetry.Build{})
	r.MustRegister(vec)
	handler := telemetry.Handler(r, slog.New(slog.DiscardHandler))
	get := func(accept string) []byte {
		req, rec := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
		req.Header.Set("Accept", accept)
		handler.ServeHTTP(rec, req)
		body, err := io.ReadAll(rec.Body)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	text := string(get("text/plain"))
	for _, want := range []string{
		`hostd_probe_seconds_bucket{procedure="a",le="1e-05"} 0`, `hostd_probe_seconds_bucket{procedure="a",le="2e-05"} 1`,
		`hostd_probe_seconds_bucket{procedure="b",le="10"} 2`, `hostd_probe_seconds_bucket{procedure="b",le="+Inf"} 3`, `hostd_probe_seconds_count{procedure="b"} 3`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	open := string(get("application/openmetrics-text; version=1.0.0"))
	for _, want := range []string{
		`hostd_probe_seconds_bucket{procedure="b",le="2e-05"} 2 # {trace_id="0000000000000000000000000000002b"} 1.5e-05 `,
		`hostd_probe_seconds_bucket{procedure="b",le="+Inf"} 3 # {trace_id="0000000000000000000000000000002a"} 60.0 `,
	} {
		if !strings.Contains(open, want) {
			t.Errorf("%q is missing in %s", want, open)
		}
	}
	var parsed int
	const binary = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	for d := expfmt.NewDecoder(bytes.NewReader(get(binary)), expfmt.NewFormat(expfmt.TypeProtoDelim)); ; {
		var family dto.MetricFamily
		if err := d.Decode(&family); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range family.Metric {
			if h := m.Histogram; family.GetName() == "hostd_probe_seconds" && len(h.PositiveSpan) > 0 && h.GetSchema() == 3 {
				parsed++
			}
		}
	}
	if parsed != 2 {
		t.Errorf("%d native histograms", parsed)
	}
}

// TestScrapeDuringObservationsIsConsistent: a scrape during observations is consistent. Both kinds
// of buckets add up to the histogram's count, as scrapers require.
func TestScrapeDuringObservationsIsConsistent(t *testing.T) {
	vec := telemetry.NewHistogramVec(opts(telemetry.LatencyBuckets()), nil)
	const each, writers = 20_000, 4
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				vec.Alone().ObserveTraced(time.Duration(i*w), [16]byte{1})
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for ended := false; ; {
		h := collected(t, vec)
		sum := int64(h.GetZeroCount())
		for _, n := range native(h) {
			sum += n
		}
		if sum != int64(h.GetSampleCount()) {
			t.Fatalf("%d in native buckets, %d in all", sum, h.GetSampleCount())
		}
		if ended {
			if sum != each*writers {
				t.Errorf("%d are counted, want %d", sum, each*writers)
			}
			return
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	vec := telemetry.NewHistogramVec(opts(telemetry.LatencyBuckets()), []string{"procedure"})
	vec.Of("p")
	d := time.Nanosecond
	if n := testing.AllocsPerRun(1000, func() { vec.Of("p").ObserveTraced(d, telemetry.SampledTrace("")); d += d / 8 }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	vec := telemetry.NewHistogramVec(opts(telemetry.LatencyBuckets()), nil)
	b.ReportAllocs()
	for i := range b.N {
		vec.Alone().Observe(time.Duration(i&0xffff) * time.Microsecond)
	}
}
