package traces

import (
	"context"
	"math/rand/v2"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Interceptor returns an interceptor that makes a span for every traced call,
// as a child of the caller's span or linked to it.
//
// If the caller does not decide about tracing, the call is sampled here, before
// a span exists. Otherwise the otelconnect library would make a span for each
// call and ask the sampler only then, which costs more than tracing one call in
// a hundred.
func (p *Provider) Interceptor() (connect.Interceptor, error) {
	with := []otelconnect.Option{
		otelconnect.WithTracerProvider(p.spans), otelconnect.WithPropagator(propagation.TraceContext{}),
		otelconnect.WithoutMetrics(),
	}
	if p.trust {
		with = append(with, otelconnect.WithTrustRemote())
	}
	all, err := otelconnect.NewInterceptor(with...)
	if err != nil {
		return nil, err
	}
	return &calls{Interceptor: all, trust: p.trust, ratio: p.ratio}, nil
}

// calls passes sampled unary calls, and all streams, to an interceptor that
// makes spans. Streams are rare, so they are not sampled here.
type calls struct {
	connect.Interceptor
	trust bool
	ratio float64
}

// WrapUnary implements connect.Interceptor.
func (c *calls) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	traced := c.Interceptor.WrapUnary(next)
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		switch {
		case c.trust && req.Header().Get("Traceparent") != "":
			return traced(ctx, req) // the sampler uses the caller's decision
		case rand.Float64() < c.ratio:
			return traced(context.WithValue(ctx, chosen{}, true), req)
		}
		return next(ctx, req)
	}
}

// chosen is the context key of calls that were sampled by the ratio.
type chosen struct{}

// beginning samples traces that start with a chosen call, and leaves all
// other traces to the wrapped Sampler.
type beginning struct{ sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler.
func (b beginning) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.ParentContext.Value(chosen{}) != nil {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return b.Sampler.ShouldSample(p)
}
