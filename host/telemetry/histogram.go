package telemetry

import (
	"encoding/hex"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Histogram counts durations. It is safe for concurrent use.
type Histogram struct {
	bounds *HistogramBounds
	cells  []atomic.Uint64
	nanos  atomic.Uint64 // sum of all durations
	traced []atomic.Pointer[dto.Exemplar]
	since  *timestamppb.Timestamp
}

// NewHistogram returns an empty histogram.
func NewHistogram(b *HistogramBounds) *Histogram {
	return &Histogram{
		bounds: b, cells: make([]atomic.Uint64, len(b.edges)+1), traced: make([]atomic.Pointer[dto.Exemplar], len(b.classic)+1),
		since: timestamppb.Now(),
	}
}

// Observe counts a duration. A negative duration counts as 0.
func (h *Histogram) Observe(d time.Duration) { h.observe(d) }

func (h *Histogram) observe(d time.Duration) (cell int) {
	d = max(d, 0)
	cell = h.bounds.cell(float64(d) / 1e9)
	h.cells[cell].Add(1)
	h.nanos.Add(uint64(d))
	return cell
}

// ObserveTraced counts a duration and stores the trace id as the exemplar of
// its classic bucket. A zero trace id is ignored.
func (h *Histogram) ObserveTraced(d time.Duration, trace [16]byte) {
	cell := h.observe(d)
	if trace == ([16]byte{}) {
		return
	}
	h.traced[h.bounds.bucket[cell]].Store(&dto.Exemplar{
		Label: []*dto.LabelPair{{Name: proto.String("trace_id"), Value: proto.String(hex.EncodeToString(trace[:]))}},
		Value: proto.Float64(d.Seconds()), Timestamp: timestamppb.Now(),
	})
}

// HistogramSnapshot is a copy of the counts of one or more histograms. The zero
// value is empty.
type HistogramSnapshot struct {
	bounds *HistogramBounds
	cells  []uint64
	nanos  uint64
	traced []*dto.Exemplar
	since  *timestamppb.Timestamp
}

// Add adds the counts of a histogram. All added histograms must have the same
// bounds.
func (s *HistogramSnapshot) Add(h *Histogram) {
	if s.bounds == nil {
		s.bounds, s.cells, s.traced, s.since = h.bounds, make([]uint64, len(h.cells)), make([]*dto.Exemplar, len(h.traced)), h.since
	}
	for i := range h.cells {
		s.cells[i] += h.cells[i].Load()
	}
	s.nanos += h.nanos.Load()
	for i := range h.traced {
		if e := h.traced[i].Load(); e != nil && (s.traced[i] == nil || s.traced[i].Timestamp.AsTime().Before(e.Timestamp.AsTime())) {
			s.traced[i] = e
		}
	}
	if h.since.AsTime().Before(s.since.AsTime()) {
		s.since = h.since
	}
}

// Count returns the number of durations.
func (s *HistogramSnapshot) Count() (n uint64) {
	for _, c := range s.cells {
		n += c
	}
	return n
}

// Metric returns the snapshot as a Prometheus metric with the given label
// values.
func (s *HistogramSnapshot) Metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return &metric{desc: desc, labels: prometheus.MakeLabelPairs(desc, labels), snapshot: s}
}

type metric struct {
	desc     *prometheus.Desc
	labels   []*dto.LabelPair
	snapshot *HistogramSnapshot
}

// Desc implements prometheus.Metric.
func (m *metric) Desc() *prometheus.Desc { return m.desc }

// Write implements prometheus.Metric.
func (m *metric) Write(out *dto.Metric) error {
	s := m.snapshot
	h := &dto.Histogram{
		SampleCount: proto.Uint64(s.Count()), SampleSum: proto.Float64(float64(s.nanos) / 1e9), CreatedTimestamp: s.since,
		Schema: proto.Int32(schema), ZeroThreshold: proto.Float64(zeroBelow),
	}
	byBucket, byKey := make([]uint64, len(s.bounds.classic)+1), make([]uint64, nativeKeys+2)
	for cell, n := range s.cells {
		byBucket[s.bounds.bucket[cell]] += n
		byKey[s.bounds.key[cell]] += n
	}
	var sum uint64
	for i, n := range byBucket {
		sum += n
		upper := math.Inf(1)
		if i < len(s.bounds.classic) {
			upper = s.bounds.classic[i]
		} else if s.traced[i] == nil {
			break // the library adds the +Inf bucket itself
		}
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: proto.Uint64(sum), UpperBound: proto.Float64(upper), Exemplar: s.traced[i]})
	}
	h.ZeroCount = proto.Uint64(byKey[0])
	h.PositiveSpan, h.PositiveDelta = sparse(byKey[1:])
	out.Label, out.Histogram = m.labels, h
	return nil
}

// sparse encodes bucket counts as spans of non-empty buckets and as deltas
// between consecutive counts. For an empty histogram it returns one span of
// length 0, which marks the histogram as native.
func sparse(counts []uint64) (spans []*dto.BucketSpan, deltas []int64) {
	var before int64
	next := 0 // the bucket after the last span
	for i, n := range counts {
		if n == 0 {
			continue
		}
		if len(spans) == 0 || i > next {
			offset := i - next
			if len(spans) == 0 {
				offset = i + 1 + lowest*perOctave
			}
			spans = append(spans, &dto.BucketSpan{Offset: proto.Int32(int32(offset)), Length: proto.Uint32(0)})
		}
		*spans[len(spans)-1].Length++
		deltas = append(deltas, int64(n)-before)
		before, next = int64(n), i+1
	}
	if spans == nil {
		spans = []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}
	}
	return spans, deltas
}

// Since returns the counts since an earlier snapshot. Histograms that were
// added after that snapshot count in full.
func (s *HistogramSnapshot) Since(earlier HistogramSnapshot) HistogramSnapshot {
	out := HistogramSnapshot{bounds: s.bounds, cells: make([]uint64, len(s.cells)), nanos: s.nanos - earlier.nanos}
	for i, n := range s.cells {
		if out.cells[i] = n; i < len(earlier.cells) {
			out.cells[i] -= earlier.cells[i]
		}
	}
	return out
}

// Quantile returns an upper bound for the q-quantile, with share as q in [0,
// 1]. It is the upper bound of the cell that contains the quantile, or the
// highest bound if the quantile exceeds all bounds. It returns 0 for an empty
// snapshot.
func (s *HistogramSnapshot) Quantile(share float64) time.Duration {
	total := s.Count()
	if total == 0 {
		return 0
	}
	rank, sum := uint64(math.Ceil(share*float64(total))), uint64(0)
	for cell, n := range s.cells {
		if sum += n; sum >= max(rank, 1) {
			return time.Duration(s.bounds.edges[min(cell, len(s.bounds.edges)-1)] * 1e9)
		}
	}
	return time.Duration(s.bounds.edges[len(s.bounds.edges)-1] * 1e9)
}
