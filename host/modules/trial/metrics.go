package trial

import "github.com/prometheus/client_golang/prometheus"

// Collector exports the counts of both modules of each type in a rollout. It
// implements prometheus.Collector.
type Collector struct {
	// Each calls its argument for the types that two modules serve here.
	Each func(func(entityType string, older, newer *Counter))
}

var (
	commandsTotal   = prometheus.NewDesc("hostd_rollout_commands_total", "Commands passed to guests, of types with a rollout, by module: current, or canary for the new module.", []string{"entity_type", "version"}, nil)
	rejectionsTotal = prometheus.NewDesc("hostd_rollout_rejections_total", "Commands of types with a rollout that the module rejected, by module.", []string{"entity_type", "version"}, nil)
	faultsTotal     = prometheus.NewDesc("hostd_rollout_faults_total", "Guest calls that trapped or violated the ABI, of types with a rollout, by module.", []string{"entity_type", "version"}, nil)
	commandTook     = histogram("hostd_rollout_command_seconds", "Duration of guest calls for commands of types with a rollout, by module.", []string{"entity_type", "version"})
)

// exportedOctaves is how many doublings of a duration one bucket of the metric
// spans.
const exportedOctaves = 2

func histogram(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{commandsTotal, rejectionsTotal, faultsTotal, commandTook} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	c.Each(func(entityType string, older, newer *Counter) {
		for version, counter := range map[string]*Counter{"current": older, "canary": newer} {
			all := counter.Total()
			count := func(d *prometheus.Desc, v uint64) {
				out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), entityType, version)
			}
			count(commandsTotal, all.Commands)
			count(rejectionsTotal, all.Rejections)
			count(faultsTotal, all.Faults)
			buckets, below := map[float64]uint64{}, uint64(0)
			for i, n := range all.Took[:Buckets-1] {
				if below += n; i%(steps*exportedOctaves) == 0 {
					buckets[bucketBound(i).Seconds()] = below
				}
			}
			out <- prometheus.MustNewConstHistogram(commandTook, below+all.Took[Buckets-1], float64(all.Nanos)/1e9, buckets, entityType, version)
		}
	})
}
