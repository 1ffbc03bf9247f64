package latency

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Vec is histograms of one name by the value of one label, or a single one
// without a label. It is a prometheus.Collector, and safe for concurrent use.
type Vec struct {
	desc   *prometheus.Desc
	bounds *Bounds
	mu     sync.Mutex // of changes of all
	all    atomic.Pointer[map[string]*Histogram]
	alone  *Histogram
}

// NewVec returns a collector with the name, help and buckets of opts; labels is
// the name of a label, or empty.
func NewVec(opts prometheus.HistogramOpts, labels []string) *Vec {
	v := &Vec{desc: NewDesc(opts, labels), bounds: NewBounds(opts.Buckets)}
	v.all.Store(&map[string]*Histogram{})
	if len(labels) == 0 {
		v.alone = NewHistogram(v.bounds)
	}
	return v
}

// Alone is the histogram of a Vec without a label.
func (v *Vec) Alone() *Histogram { return v.alone }

// Of returns the histogram of a value of the label, of which there is a bound.
func (v *Vec) Of(value string) *Histogram {
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

// NewDesc returns a description with the name and the help of opts, of a metric
// with these labels.
func NewDesc(opts prometheus.HistogramOpts, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(opts.Name, opts.Help, labels, nil)
}

// Describe implements prometheus.Collector.
func (v *Vec) Describe(out chan<- *prometheus.Desc) { out <- v.desc }

// Collect implements prometheus.Collector.
func (v *Vec) Collect(out chan<- prometheus.Metric) {
	if v.alone != nil {
		var s Snapshot
		s.Add(v.alone)
		out <- s.Metric(v.desc)
	}
	for value, h := range *v.all.Load() {
		var s Snapshot
		s.Add(h)
		out <- s.Metric(v.desc, value)
	}
}
