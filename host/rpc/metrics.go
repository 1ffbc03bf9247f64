package rpc

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/telemetry"
)

// metrics count what the server does. It is a connect.Interceptor. Labels are
// names of procedures and codes, never anything a caller chose.
type metrics struct {
	seconds *prometheus.HistogramVec // procedure: calls that are not streams
	calls   *prometheus.CounterVec   // procedure, code
	streams prometheus.Gauge
	items   *prometheus.CounterVec // code
	done    prometheus.Counter     // items without an error

	subscribers prometheus.Gauge
	lag         prometheus.Histogram
	delivered   prometheus.Counter
}

const codeOK = "ok"

// newMetrics registers the metrics, unless r is nil: they are counted in vain
// then.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hostd_rpc_seconds", Help: "Duration of calls, from the decoded request to the answer.",
			Buckets: telemetry.LatencyBuckets(),
		}, []string{"procedure"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_rpc_calls_total", Help: "Calls and streams that have ended, by the code they ended with.",
		}, []string{"procedure", "code"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hostd_rpc_streams", Help: "Long-lived streams that are open.",
		}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_rpc_stream_commands_total", Help: "Commands of SendStream that have been answered, by code.",
		}, []string{"code"}),
		subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hostd_rpc_subscribers", Help: "Subscriptions that are open, without those of other nodes.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hostd_rpc_subscription_lag_seconds", Help: "Age of events when they were sent to subscribers, since their command ran: how far they are behind.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 8, 12), // to 2.4 hours
		}),
		delivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hostd_rpc_subscription_events_total", Help: "Events sent to subscribers, without those sent to other nodes.",
		}),
	}
	m.done = m.items.WithLabelValues(codeOK)
	if r != nil {
		r.MustRegister(m.seconds, m.calls, m.streams, m.items, m.subscribers, m.lag, m.delivered)
	}
	return m
}

// WrapUnary counts and times calls.
func (m *metrics) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		start := time.Now()
		res, err := next(ctx, req)
		procedure := strings.TrimPrefix(req.Spec().Procedure, "/")
		m.seconds.WithLabelValues(procedure).Observe(time.Since(start).Seconds())
		m.calls.WithLabelValues(procedure, codeLabel(err)).Inc()
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor; the server has no clients.
func (m *metrics) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler counts streams.
func (m *metrics) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		m.streams.Inc()
		defer m.streams.Dec()
		err := next(ctx, conn)
		m.calls.WithLabelValues(strings.TrimPrefix(conn.Spec().Procedure, "/"), codeLabel(err)).Inc()
		return err
	}
}

func codeLabel(err error) string {
	if err == nil {
		return codeOK
	}
	return connect.CodeOf(err).String()
}
