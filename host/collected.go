package host

import (
	"github.com/prometheus/client_golang/prometheus"
)

// moduleCollector exports metrics about the cluster's modules.
type moduleCollector struct{ n *Node }

var (
	moduleCount  = prometheus.NewDesc("hostd_modules", "Modules in the cluster.", nil, nil)
	moduleBytes  = prometheus.NewDesc("hostd_module_bytes", "Size of the modules in the cluster.", nil, nil)
	moduleUnused = prometheus.NewDesc("hostd_modules_unused", "Modules in the cluster that serve no entity type and that no rollback needs.", nil, nil)
	moduleGone   = prometheus.NewDesc("hostd_modules_collected_total", "Modules that this node removed as coordinator because they were unused for module-retention.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c moduleCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{moduleCount, moduleBytes, moduleUnused, moduleGone} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c moduleCollector) Collect(out chan<- prometheus.Metric) {
	var bytes, unused int64
	modules := c.n.membership.metadata.View().Modules()
	for _, m := range modules {
		bytes += m.Size
		if m.UnusedSince != 0 {
			unused++
		}
	}
	out <- prometheus.MustNewConstMetric(moduleCount, prometheus.GaugeValue, float64(len(modules)))
	out <- prometheus.MustNewConstMetric(moduleBytes, prometheus.GaugeValue, float64(bytes))
	out <- prometheus.MustNewConstMetric(moduleUnused, prometheus.GaugeValue, float64(unused))
	out <- prometheus.MustNewConstMetric(moduleGone, prometheus.CounterValue, float64(c.n.guests.collected.Load()))
}
