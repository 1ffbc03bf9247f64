package authn

import "github.com/prometheus/client_golang/prometheus"

// metrics counts results of the authenticator. No label has a value chosen by a
// caller.
type metrics struct {
	requests *prometheus.CounterVec // by kind
	failures *prometheus.CounterVec // by method and reason
	reloads  *prometheus.CounterVec // by source
	streams  prometheus.Counter

	kinds map[kind]prometheus.Counter // counters of requests, by kind
}

// newMetrics registers the metrics, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_auth_requests_total", Help: "Authenticated requests, by the kind of credential.",
		}, []string{"kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_auth_failures_total", Help: "Requests rejected because their credential was missing or invalid.",
		}, []string{"method", "reason"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_auth_reload_failures_total", Help: "Failed reloads of a credential file or of the issuer's keys; the previous contents stay in effect.",
		}, []string{"source"}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hostd_auth_streams_ended_total", Help: "Streams ended because their credential expired or was revoked.",
		}),
		kinds: map[kind]prometheus.Counter{},
	}
	for _, k := range []kind{KindAnonymous, KindToken, KindJWT, KindCertificate} {
		m.kinds[k] = m.requests.WithLabelValues(string(k))
	}
	for _, source := range []string{"token-file", "jwt-keys-file", "oidc-issuer"} {
		m.reloads.WithLabelValues(source)
	}
	if r != nil {
		r.MustRegister(m.requests, m.failures, m.reloads, m.streams)
	}
	return m
}
