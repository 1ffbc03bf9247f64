package edge

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/telemetry"
)

// metrics counts and times calls. It is a connect.Interceptor. Labels are
// procedure names and codes, never values that a caller chose, so that the
// number of series is bounded.
type metrics struct {
	seconds *telemetry.HistogramVec // by procedure: unary calls only
	calls   *prometheus.CounterVec  // by procedure and code
	streams prometheus.Gauge
}

const codeOK = "ok"

// newMetrics makes the metrics and registers them, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: telemetry.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hostd_rpc_seconds", Help: "Duration of calls, from the decoded request to the response.",
			Buckets: telemetry.LatencyBuckets(),
		}, []string{"procedure"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostd_rpc_calls_total", Help: "Completed calls and streams, by code.",
		}, []string{"procedure", "code"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hostd_rpc_streams", Help: "Open long-lived streams.",
		}),
	}
	if r != nil {
		r.MustRegister(m.seconds, m.calls, m.streams)
	}
	return m
}

// watch registers the metrics of waiting bytes, unless r is nil.
func (m *metrics) watch(r prometheus.Registerer, w *admission.Waiting) {
	if r == nil {
		return
	}
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hostd_rpc_waiting_bytes", Help: "Size of the calls and stream messages that the node has read and not completed.",
		}, func() float64 { return float64(w.UsedBytes()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "hostd_rpc_waiting_rejected_total", Help: "Calls and stream messages rejected because too many bytes are waiting.",
		}, func() float64 { return float64(w.RefusedCount()) }),
	)
}

// WrapUnary counts and times unary calls.
func (m *metrics) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		start := time.Now()
		res, err := next(ctx, req)
		procedure := strings.TrimPrefix(req.Spec().Procedure, "/")
		m.seconds.Of(procedure).ObserveTraced(time.Since(start), telemetry.SampledTrace(req.Header().Get("Traceparent")))
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
