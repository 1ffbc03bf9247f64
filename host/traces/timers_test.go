package traces

import (
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// TestTimersBeginTraces: a timer fires in a trace of its own, linked to the
// command that set it, and its record contains the new span.
func TestTimersBeginTraces(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	set := asked
	set.Flags |= journal.TraceAfterTimer
	r := command(nil, &set)
	r.Done = &timers.Firing{Timer: journal.Timer{Name: "remind", Trace: &asked.TraceContext}}
	span := NewTimers(p.Tracer("test")).Fire(r)
	r.Exec.Since = time.Now().Add(-time.Second)
	r.Exec.RecordCall(nil, &journal.Digest{7}, r.Exec.Since.Add(time.Millisecond), r.Exec.Since.Add(2*time.Millisecond))
	r.Result = request.Result{Sequence: 3}
	span.End(r)
	ended := spans.Ended()
	s := ended[len(ended)-1]
	c := s.SpanContext()
	if s.Name() != "entity order/place" || s.Parent().IsValid() || c.TraceID() == asked.TraceContext.Trace || s.SpanKind() != trace.SpanKindConsumer ||
		len(s.Links()) != 1 || !s.Links()[0].SpanContext.Equal(spanContextOf(&asked.TraceContext)) {
		t.Errorf("%s, %v below %v, links %v", s.Name(), c, s.Parent(), s.Links())
	}
	if r.Trace == nil || r.Trace.Trace != c.TraceID() || r.Trace.Span != c.SpanID() || r.Trace.Flags != 1|journal.TraceAfterTimer {
		t.Errorf("the record is to name %+v", r.Trace)
	}
	if a := attributesOf(s); a["hostd.timer"] != "remind" || a["hostd.command"] != "place" || a["hostd.sequence"] != int64(3) || len(ended) != 4 {
		t.Errorf("%d spans, %v", len(ended), a)
	}
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	quiet := command(nil, &set)
	if span := NewTimers(never.Tracer("test")).Fire(quiet); span != nil || quiet.Trace != &set {
		t.Errorf("a span that nobody takes: %v, %v", span, quiet.Trace)
	}
}
