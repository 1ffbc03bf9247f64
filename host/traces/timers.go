package traces

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
)

const keyTimer = attribute.Key("hostd.timer")

// Timers makes spans for timers that fire. Each starts a trace of its own,
// linked to the span of the command that set the timer.
type Timers struct{ tracer trace.Tracer }

// NewTimers returns Timers that use tracer.
func NewTimers(tracer trace.Tracer) *Timers { return &Timers{tracer} }

// Fire implements timers.Spans. It returns nil if the span is not recorded.
func (t *Timers) Fire(r *request.Request) timers.Span {
	name := ""
	if f := timers.Of(r); f != nil {
		name = f.Timer.Name
	}
	ctx, span := t.tracer.Start(context.Background(), "entity "+r.Entity.Type+"/"+r.Name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(trace.Link{SpanContext: spanContextOf(&r.Trace.TraceContext)}),
		trace.WithAttributes(keyType.String(r.Entity.Type), keyID.String(r.Entity.ID), keyCommand.String(r.Name), keyTimer.String(name)))
	if !span.IsRecording() {
		return nil
	}
	f := &timerSpan{requestSpan{t.tracer, ctx, span}}
	f.name(r)
	return f
}

type timerSpan struct{ requestSpan }

// End implements timers.Span.
func (f *timerSpan) End(r *request.Request) { f.end(r, time.Now()) }
