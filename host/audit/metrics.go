package audit

import "github.com/prometheus/client_golang/prometheus"

// metrics counts written and lost lines.
type metrics struct {
	lines, lost, failures prometheus.Counter
}

// newMetrics registers the metrics, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		lines:    counter("hostd_audit_log_lines_total", "Audit log records written."),
		lost:     counter("hostd_audit_log_lost_lines_total", "Audit log records that could not be written."),
		failures: counter("hostd_audit_log_write_failures_total", "Failed writes of the audit log."),
	}
	if r != nil {
		r.MustRegister(m.lines, m.lost, m.failures)
	}
	return m
}
