package certs

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of a Reloader. The Reloaders of a node share the
// vectors and use different labels.
type metrics struct {
	failures *prometheus.CounterVec
	ends     *prometheus.GaugeVec
}

func newMetrics(to prometheus.Registerer) metrics {
	m := metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_tls_reload_failures_total",
			Help: "Failed reloads of the certificate files, server or peer; the previous files stay in use.",
		}, []string{"use"}),
		ends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hostd_tls_cert_not_after_seconds",
			Help: "Expiry of certificates as Unix time: server is the node's certificate for clients, peer its certificate for other nodes; client-ca, peer-ca and peer-crl are the earliest expiry of the authorities and revocation lists.",
		}, []string{"use"}),
	}
	if to != nil {
		m.failures, m.ends = registerShared(to, m.failures), registerShared(to, m.ends)
	}
	return m
}

// registerShared registers a collector, or returns the collector that is
// already registered under its name.
func registerShared[C prometheus.Collector](to prometheus.Registerer, c C) C {
	err := to.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		return before.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // as MustRegister does, because the names are fixed
	}
	return c
}
