package traces

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// Of returns the span in ctx in the form that requests use, or nil if there is
// none or it is not sampled.
func Of(ctx context.Context) *request.Trace {
	c := trace.SpanContextFromContext(ctx)
	if !c.IsSampled() || !c.IsValid() {
		return nil
	}
	return traceOf(c)
}

func traceOf(c trace.SpanContext) *request.Trace {
	return &request.Trace{TraceContext: journal.TraceContext{Trace: c.TraceID(), Span: c.SpanID(), Flags: uint8(c.TraceFlags()) &^ journal.TraceAfterTimer}}
}

// spanContextOf is the inverse of taken. The span is marked as remote, so that nothing
// is added to it.
func spanContextOf(c *journal.TraceContext) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.Trace, SpanID: c.Span, TraceFlags: trace.TraceFlags(c.Flags &^ journal.TraceAfterTimer), Remote: true})
}
