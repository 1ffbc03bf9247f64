package traces

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// Of is the span that is under way in ctx, as requests have it; nil for none,
// and for one that is not sampled.
func Of(ctx context.Context) *request.Trace {
	c := trace.SpanContextFromContext(ctx)
	if !c.IsSampled() || !c.IsValid() {
		return nil
	}
	return taken(c)
}

func taken(c trace.SpanContext) *request.Trace {
	return &request.Trace{TraceContext: journal.TraceContext{Trace: c.TraceID(), Span: c.SpanID(), Flags: uint8(c.TraceFlags()) &^ journal.TraceAfterTimer}}
}

// given is the inverse of taken. The span is another node's, or was: nothing is
// to be added to it.
func given(c *journal.TraceContext) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.Trace, SpanID: c.Span, TraceFlags: trace.TraceFlags(c.Flags &^ journal.TraceAfterTimer), Remote: true})
}
