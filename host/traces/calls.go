package traces

import (
	"context"
	"math/rand/v2"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Interceptor makes a span of every call that is traced, within that of its
// caller or linked to it.
//
// A call whose caller does not decide is chosen here, before there is anything
// of a span: the library makes one for each call and asks its sampler then,
// which costs a command more than tracing one in a hundred may.
func (p *Provider) Interceptor() (connect.Interceptor, error) {
	with := []otelconnect.Option{
		otelconnect.WithTracerProvider(p.spans), otelconnect.WithPropagator(propagation.TraceContext{}),
		otelconnect.WithoutMetrics(), otelconnect.WithoutTraceEvents(), otelconnect.WithoutServerPeerAttributes(),
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

// calls hands the unary calls that are traced to an interceptor that makes
// spans, and all streams: those are few.
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
			return traced(ctx, req) // its sampler reads what the caller says
		case rand.Float64() < c.ratio:
			return traced(context.WithValue(ctx, chosen{}, true), req)
		}
		return next(ctx, req)
	}
}

// chosen is the key of contexts of calls that are traced already by the ratio.
type chosen struct{}

// beginning samples the traces that begin with a call that was chosen, and
// others as another Sampler does.
type beginning struct{ sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler.
func (b beginning) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.ParentContext.Value(chosen{}) != nil {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return b.Sampler.ShouldSample(p)
}
