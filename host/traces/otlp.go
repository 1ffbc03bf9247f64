package traces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/files"
)

// Limits of the queue of spans: 2,048 spans, each with at most 24 attributes of
// 512 bytes and 8 links. The names of spans and the texts of errors are bounded
// by the API.
const (
	queueSpans     = 2048
	batchSpans     = 512
	mostAttributes = 24
	mostLinks      = 8
	mostTextBytes  = 512
	mostHeaders    = 32
	mostFileBytes  = 64 << 10
)

const (
	sendEvery   = time.Second
	sendTimeout = 10 * time.Second
	complainAt  = time.Minute // minimum interval between warnings about the collector
	closeWithin = 3 * time.Second
)

// ProviderOptions configures a Provider.
type ProviderOptions struct {
	URL         string // URL of the collector, with its path
	HeadersFile string // "" for none; read only once
	Ratio       float64
	TrustRemote bool
	Node        string
	Version     string
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Provider makes spans and sends them. It is safe for concurrent use.
type Provider struct {
	spans *sdktrace.TracerProvider
	out   *exporter
	trust bool
	ratio float64
}

// NewProvider returns a Provider. The collector need not be reachable yet.
func NewProvider(ctx context.Context, o ProviderOptions) (*Provider, error) {
	headers, err := readHeaders(o.HeadersFile)
	if err != nil {
		return nil, err
	}
	client := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(o.URL), otlptracehttp.WithTimeout(sendTimeout)}
	if len(headers) > 0 {
		client = append(client, otlptracehttp.WithHeaders(headers))
	}
	sender, err := otlptracehttp.New(ctx, client...)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "hostd"), attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Node)), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	limits := sdktrace.SpanLimits{
		AttributeValueLengthLimit: mostTextBytes, AttributeCountLimit: mostAttributes, EventCountLimit: mostLinks, LinkCountLimit: mostLinks,
		AttributePerEventCountLimit: mostAttributes, AttributePerLinkCountLimit: mostAttributes,
	}
	e := newExporter(sender, o.Logger, o.Registerer)
	queue := sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxQueueSize(queueSpans), sdktrace.WithMaxExportBatchSize(batchSpans),
		sdktrace.WithBatchTimeout(sendEvery), sdktrace.WithExportTimeout(3*sendTimeout))
	return &Provider{
		spans: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&counted{queue, e.came}), sdktrace.WithResource(about),
			sdktrace.WithRawSpanLimits(limits), sdktrace.WithSampler(sdktrace.ParentBased(beginning{following{sdktrace.TraceIDRatioBased(o.Ratio)}}))),
		out: e, trust: o.TrustRemote, ratio: o.Ratio,
	}, nil
}

// Tracer returns the tracer for the spans of requests.
func (p *Provider) Tracer() trace.Tracer { return p.spans.Tracer("github.com/hostd/hostd") }

// Close sends the queued spans. It drops spans that end later, and spans that
// the collector does not accept in time, which is not an error.
func (p *Provider) Close(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	err := p.spans.Shutdown(within)
	if within.Err() == nil {
		return err
	}
	p.out.next.Shutdown(ctx) // cancels the current attempt and fails the following ones at once
	select {
	case <-p.out.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// following samples a trace if it links to the sampled trace that caused it,
// as a message's trace links to its sender's trace. Links of calls have no
// effect on sampling, because callers choose them.
type following struct{ sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler.
func (f following) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Kind == trace.SpanKindConsumer && len(p.Links) > 0 && p.Links[0].SpanContext.IsSampled() {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return f.Sampler.ShouldSample(p)
}

// counted counts spans before they are queued, because the queue may drop them.
type counted struct {
	sdktrace.SpanProcessor
	count prometheus.Counter
}

// OnEnd implements sdktrace.SpanProcessor.
func (c *counted) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.count.Inc()
	}
	c.SpanProcessor.OnEnd(s)
}

// exporter counts the spans that next exports, and logs failures at intervals.
type exporter struct {
	next               sdktrace.SpanExporter
	logger             *slog.Logger
	came, sent, failed prometheus.Counter
	ended              chan struct{} // closed when the goroutine of the queue ends

	mu         sync.Mutex
	complained time.Time
}

// newExporter returns an exporter that forwards to next, and registers its
// counters.
func newExporter(next sdktrace.SpanExporter, logger *slog.Logger, r prometheus.Registerer) *exporter {
	e := &exporter{
		next: next, logger: logger, ended: make(chan struct{}),
		came: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hostd_trace_spans_ended_total", Help: "Spans queued for the collector; spans that are neither sent nor failed are waiting or were dropped.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hostd_trace_spans_sent_total", Help: "Spans accepted by the collector.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hostd_trace_spans_failed_total", Help: "Spans rejected by the collector or lost.",
		}),
	}
	r.MustRegister(e.came, e.sent, e.failed)
	return e
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.next.ExportSpans(ctx, spans)
	if err == nil {
		e.sent.Add(float64(len(spans)))
		return nil
	}
	e.failed.Add(float64(len(spans)))
	e.mu.Lock()
	now := time.Now()
	complain := e.complained.IsZero() || now.Sub(e.complained) >= complainAt
	if complain {
		e.complained = now
	}
	e.mu.Unlock()
	if complain {
		e.logger.Warn("the collector does not accept spans; dropping them", "spans", len(spans), "error", err)
	}
	return nil // the error is handled; returning it would log it again
}

// Shutdown implements sdktrace.SpanExporter. It is the last call by the
// goroutine of the queue.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.ended)
	return e.next.Shutdown(ctx)
}

// readHeaders parses lines of the form NAME: VALUE. It skips empty lines and
// lines that start with #. Errors contain the line number but not the text,
// which may be a secret.
func readHeaders(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, _, err := files.Regular(path, mostFileBytes)
	if err != nil {
		return nil, err
	}
	headers := make(map[string]string)
	line := 0
	for raw := range bytes.SplitSeq(text, []byte("\n")) {
		line++
		s := strings.TrimSpace(string(raw))
		if s == "" || s[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(s, ":")
		name, value = http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case !ok || name == "" || strings.ContainsFunc(name, notInName) || strings.ContainsFunc(value, notInValue):
			return nil, fmt.Errorf("%s: line %d must be a header, NAME: VALUE", path, line)
		case headers[name] != "":
			return nil, fmt.Errorf("%s: line %d repeats a header", path, line)
		}
		if headers[name] = value; len(headers) > mostHeaders {
			return nil, errors.New(path + ": has too many headers")
		}
	}
	return headers, nil
}

func notInName(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
}

func notInValue(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }
