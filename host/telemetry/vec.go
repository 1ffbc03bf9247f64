package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// HistogramVec is a set of histograms with the same name that differ in the
// value of one label, or a single histogram without a label. It implements
// prometheus.Collector and is safe for concurrent use.
type HistogramVec struct {
	desc   *prometheus.Desc
	bounds *HistogramBounds
	mu     sync.Mutex // held while all is replaced
	all    atomic.Pointer[map[string]*Histogram]
	alone  *Histogram
}

// NewHistogramVec returns a HistogramVec with the name, help and buckets of
// opts. labels has at most one label name.
func NewHistogramVec(opts prometheus.HistogramOpts, labels []string) *HistogramVec {
	v := &HistogramVec{desc: NewHistogramDesc(opts, labels), bounds: NewHistogramBounds(opts.Buckets)}
	v.all.Store(&map[string]*Histogram{})
	if len(labels) == 0 {
		v.alone = NewHistogram(v.bounds)
	}
	return v
}

// Alone returns the histogram of a HistogramVec without a label, and nil
// otherwise.
func (v *HistogramVec) Alone() *Histogram { return v.alone }

// Of returns the histogram for a label value, and creates it if needed. The
// caller must use a bounded number of values.
func (v *HistogramVec) Of(value string) *Histogram {
	if h := (*v.all.Load())[value]; h != nil {
		return h
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	all := maps.Clone(*v.all.Load())
	if all[value] == nil {
		all[value] = NewHistogram(v.bounds)
		v.all.Store(&all)
	}
	return all[value]
}

// NewHistogramDesc returns a description with the name and help of opts and the
// given labels.
func NewHistogramDesc(opts prometheus.HistogramOpts, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(opts.Name, opts.Help, labels, nil)
}

// Describe implements prometheus.Collector.
func (v *HistogramVec) Describe(out chan<- *prometheus.Desc) { out <- v.desc }

// Collect implements prometheus.Collector.
func (v *HistogramVec) Collect(out chan<- prometheus.Metric) {
	if v.alone != nil {
		var s HistogramSnapshot
		s.Add(v.alone)
		out <- s.Metric(v.desc)
	}
	for value, h := range *v.all.Load() {
		var s HistogramSnapshot
		s.Add(h)
		out <- s.Metric(v.desc, value)
	}
}
