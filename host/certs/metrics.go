package certs

import "github.com/prometheus/client_golang/prometheus"

// register makes the metrics, and returns the counter of failures.
func (r *Reloader) register() prometheus.Counter {
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_tls_reload_failures_total",
		Help: "Certificate files that were read anew and could not be used; those before stay in use.",
	})
	if r.opts.Registerer != nil {
		r.opts.Registerer.MustRegister(failures, endCollector{r, prometheus.NewDesc(
			"hostd_tls_cert_not_after_seconds", "Unix time until which a certificate is good: server is the node's own, client-ca the first of the authorities to end.", []string{"use"}, nil)})
	}
	return failures
}

// endCollector tells until when the certificates in use are good.
type endCollector struct {
	r    *Reloader
	desc *prometheus.Desc
}

func (c endCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

func (c endCollector) Collect(out chan<- prometheus.Metric) {
	for use, end := range c.r.ends() {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(end.Unix()), use)
	}
}
