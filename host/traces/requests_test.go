package traces

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// lanes carries out requests as the test says, and stores their traces.
type lanes struct {
	run  func(*request.Request)
	with []*request.Trace
}

func (l *lanes) Submit(reqs []*request.Request) {
	for _, r := range reqs {
		l.with = append(l.with, r.Trace)
		l.run(r)
		r.Done.Complete(r)
	}
}

// waiter counts completions.
type waiter struct{ n int }

func (w *waiter) Complete(*request.Request) { w.n++ }

var asked = request.Trace{TraceContext: journal.TraceContext{Trace: [16]byte{1, 15: 2}, Span: [8]byte{3, 7: 4}, Flags: 1}}

func command(w *waiter, in *request.Trace) *request.Request {
	return &request.Request{
		Kind: request.Command, Entity: sharding.EntityID{Type: "order", ID: "o-1"}, Name: "place", ID: "c-1", Shard: 5, Trace: in, Done: w,
	}
}

func world(run func(*request.Request)) (*Requests, *lanes, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	l := &lanes{run: run}
	return NewRequests(l, p.Tracer("test")), l, spans
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]any {
	out := make(map[string]any)
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.AsInterface()
	}
	return out
}

// TestRequestsHaveSpans: a command with a sampled trace runs in a child of the
// caller's span. Its record contains the new span, and the children show what
// it waited for. The waiting caller gets the request back unchanged.
func TestRequestsHaveSpans(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	q, l, spans := world(func(r *request.Request) {
		var waiting request.Queue
		r.Exec.Since = at
		waiting.Push(r)
		waiting.RecordLoad(at.Add(time.Second))
		r.Exec.RecordCall(nil, &journal.Digest{7}, at.Add(2*time.Second), at.Add(4*time.Second))
		r.Result = request.Result{Sequence: 7, Fuel: 300}
	})
	w := &waiter{}
	r := command(w, &asked)
	q.Submit([]*request.Request{r})
	if w.n != 1 || r.Done != w || r.Trace != &asked {
		t.Fatalf("completed %d times, with %v in %v", w.n, r.Done, r.Trace)
	}
	ended := spans.Ended()
	if len(ended) != 5 {
		t.Fatalf("%d spans", len(ended))
	}
	root := ended[4]
	c := root.SpanContext()
	if root.Name() != "entity order/place" || c.TraceID() != asked.TraceContext.Trace || root.Parent().SpanID() != asked.Span || root.Status().Code != codes.Unset {
		t.Errorf("%s of %v below %v, %v", root.Name(), c.TraceID(), root.Parent().SpanID(), root.Status())
	}
	if in := l.with[0]; in.Trace != asked.TraceContext.Trace || in.Span != c.SpanID() || in.Flags != 1 {
		t.Errorf("the lane is told %+v", in)
	}
	for key, want := range map[string]any{
		"hostd.entity.type": "order", "hostd.entity.id": "o-1", "hostd.command": "place", "hostd.command_id": "c-1",
		"hostd.shard": int64(5), "hostd.sequence": int64(7), "hostd.fuel": int64(300), "hostd.duplicate": nil,
	} {
		if got := attributesOf(root)[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if got := attributesOf(ended[2])["hostd.module.digest"]; got != (journal.Digest{7}).String() {
		t.Errorf("the guest is of %v", got)
	}
	for i, want := range []struct {
		name     string
		from, to time.Duration // 0: until now
	}{{"queue", 0, 2}, {"load", 0, 1}, {"guest", 2, 4}, {"commit", 4, 0}} {
		s := ended[i]
		to := s.EndTime().Sub(at)
		if s.Name() != want.name || s.Parent().SpanID() != c.SpanID() || s.StartTime().Sub(at) != want.from*time.Second ||
			want.to > 0 && to != want.to*time.Second || want.to == 0 && to < 50*time.Second {
			t.Errorf("%s below %v from %v to %v", s.Name(), s.Parent().SpanID(), s.StartTime().Sub(at), to)
		}
	}
}

// TestOutcomesOfSpans: a rejection is not an error, a fault is. A duplicate is
// marked and has no commit. Times of an earlier attempt make no child spans.
func TestOutcomesOfSpans(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	ran := func(r *request.Request) {
		r.Exec.Since = at
		r.Exec.RecordCall(nil, &journal.Digest{7}, at.Add(time.Second), at.Add(2*time.Second))
	}
	for name, tt := range map[string]struct {
		kind     request.Kind
		run      func(*request.Request)
		status   codes.Code
		key      string
		value    any
		children []string
	}{
		"rejected":  {request.Command, func(r *request.Request) { ran(r); r.Result.Err = &request.RejectedError{Code: "empty"} }, codes.Unset, "hostd.rejected", "empty", []string{"queue", "guest"}},
		"fault":     {request.Command, func(r *request.Request) { ran(r); r.Result.Err = &request.GuestFaultError{Message: "oh"} }, codes.Error, "hostd.error", "guest fault: oh", []string{"queue", "guest"}},
		"unknown":   {request.Command, func(r *request.Request) { r.Result.Err = request.ErrOutcomeUnknown }, codes.Error, "hostd.error", request.ErrOutcomeUnknown.Error(), nil},
		"stranger":  {request.Command, func(r *request.Request) { r.Result.Err = errors.New("what") }, codes.Error, "hostd.error", "what", nil},
		"elsewhere": {request.Command, func(r *request.Request) { r.Result.Err = &sharding.NotLeaderError{Shard: 5} }, codes.Unset, "hostd.sequence", nil, nil},
		"set again": {request.Command, func(r *request.Request) { r.Result.Err = timers.ErrStale }, codes.Unset, "hostd.error", timers.ErrStale.Error(), nil},
		"repeated":  {request.Command, func(r *request.Request) { r.Exec.Since = at; r.Result.Duplicate = true }, codes.Unset, "hostd.duplicate", true, nil},
		"earlier": {request.Command, func(r *request.Request) {
			ran(r)
			r.Exec.Since = at.Add(10 * time.Second)
			r.Result.Err = request.ErrBusy
		}, codes.Unset, "hostd.error", request.ErrBusy.Error(), nil},
		"query": {request.Query, ran, codes.Unset, "hostd.query", "place", []string{"queue", "guest"}},
	} {
		q, _, spans := world(tt.run)
		r := command(&waiter{}, &asked)
		r.Kind = tt.kind
		q.Submit([]*request.Request{r})
		ended := spans.Ended()
		root := ended[len(ended)-1]
		var children []string
		for _, s := range ended[:len(ended)-1] {
			children = append(children, s.Name())
		}
		if root.Status().Code != tt.status || attributesOf(root)[tt.key] != tt.value || !slices.Equal(children, tt.children) {
			t.Errorf("%s: %v, %v, children %v", name, root.Status(), attributesOf(root), children)
		}
	}
}

// TestMessagesBeginTraces: a message runs in a trace of its own, linked to the
// command that sent it, and its record contains the new span.
func TestMessagesBeginTraces(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	l := &lanes{run: func(*request.Request) {}}
	r := command(&waiter{}, &asked)
	r.Kind, r.Delivery = request.Deliver, &request.Delivery{Source: sharding.EntityID{Type: "cart", ID: "c-9"}, Number: 1}
	NewRequests(l, p.Tracer("test")).Submit([]*request.Request{r})
	s := spans.Ended()[0]
	c := s.SpanContext()
	if s.Parent().IsValid() || c.TraceID() == asked.TraceContext.Trace || s.SpanKind() != trace.SpanKindConsumer ||
		len(s.Links()) != 1 || !s.Links()[0].SpanContext.Equal(spanContextOf(&asked.TraceContext)) {
		t.Errorf("%v below %v, links %v", c, s.Parent(), s.Links())
	}
	if in := l.with[0]; in.Trace != c.TraceID() || in.Span != c.SpanID() {
		t.Errorf("the lane is told %+v", in)
	}
	if a := attributesOf(s); a["hostd.source.type"] != "cart" || a["hostd.source.id"] != "c-9" || a["hostd.command"] != "place" {
		t.Errorf("%v", a)
	}
}

// TestTimerFlagIsPropagated: the flag that a timer led to a request is passed from
// span to span inside the cluster, but not to or from other systems.
func TestTimerFlagIsPropagated(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	l := &lanes{run: func(*request.Request) {}}
	fired := asked
	fired.Flags |= journal.TraceAfterTimer
	r := command(&waiter{}, &fired)
	r.Kind, r.Delivery = request.Deliver, &request.Delivery{Source: sharding.EntityID{Type: "cart", ID: "c-9"}, Number: 1}
	NewRequests(l, p.Tracer("test")).Submit([]*request.Request{r})
	if in := l.with[0]; in.Flags != 1|journal.TraceAfterTimer {
		t.Errorf("the lane is told %+v", in)
	}
	if s := spans.Ended()[0]; s.SpanContext().TraceFlags() != 1 || s.Links()[0].SpanContext.TraceFlags() != 1 {
		t.Errorf("%v is linked to %v", s.SpanContext(), s.Links())
	}
	of := spanContextOf(&asked.TraceContext).WithTraceFlags(trace.TraceFlags(fired.Flags))
	if got := Of(trace.ContextWithSpanContext(context.Background(), of)); got == nil || *got != asked {
		t.Errorf("a caller says that a timer led to its span, which is told as %+v", got)
	}
}

// TestUnsampledRequestHasNoSpan: a request that is not sampled or calls no guest has no
// span and allocates nothing. The record of a command without a span
// contains the caller's span.
func TestUnsampledRequestHasNoSpan(t *testing.T) {
	q, l, spans := world(func(*request.Request) {})
	l.with = make([]*request.Trace, 0, 4096)
	w := &waiter{}
	plain, inspect := command(w, nil), command(w, &asked)
	inspect.Kind = request.Inspect
	reqs := []*request.Request{plain, inspect}
	if n := testing.AllocsPerRun(1000, func() { q.Submit(reqs) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	r := command(w, &asked)
	NewRequests(l, never.Tracer("test")).Submit([]*request.Request{r})
	if in := l.with[len(l.with)-1]; in != &asked || r.Done != w {
		t.Errorf("where nothing is sampled it is told %v", in)
	}
	if n := len(spans.Ended()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// TestSpansOfContexts: Of returns sampled spans, and allocates nothing if there
// is none.
func TestSpansOfContexts(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if Of(ctx) != nil {
			t.Error("a span of nowhere")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	c := spanContextOf(&asked.TraceContext)
	if got := Of(trace.ContextWithSpanContext(context.Background(), c)); got == nil || *got != asked {
		t.Errorf("%+v", got)
	}
	if got := Of(trace.ContextWithSpanContext(context.Background(), c.WithTraceFlags(0))); got != nil {
		t.Errorf("not sampled: %+v", got)
	}
}
