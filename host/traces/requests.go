package traces

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// Keys of span attributes.
const (
	keyType      = attribute.Key("hostd.entity.type")
	keyID        = attribute.Key("hostd.entity.id")
	keyShard     = attribute.Key("hostd.shard")
	keyCommand   = attribute.Key("hostd.command")
	keyCommandID = attribute.Key("hostd.command_id")
	keyQuery     = attribute.Key("hostd.query")
	keySequence  = attribute.Key("hostd.sequence")
	keyFuel      = attribute.Key("hostd.fuel")
	keyDuplicate = attribute.Key("hostd.duplicate")
	keyRejected  = attribute.Key("hostd.rejected")
	keyError     = attribute.Key("hostd.error")
	keyModule    = attribute.Key("hostd.module.digest")

	keySourceType = attribute.Key("hostd.source.type")
	keySourceID   = attribute.Key("hostd.source.id")
)

// submitter carries out requests. It does not retain the slice, and completes
// each request exactly once.
type submitter interface{ Submit([]*request.Request) }

// Requests forwards requests to another Submitter. A request with a sampled
// trace runs in a span of its own, and the record of a command contains that
// span.
type Requests struct {
	next   submitter
	tracer trace.Tracer
}

// NewRequests returns Requests that forward to next.
func NewRequests(next submitter, tracer trace.Tracer) *Requests {
	return &Requests{next: next, tracer: tracer}
}

// Submit implements Submitter.
func (t *Requests) Submit(reqs []*request.Request) {
	for _, r := range reqs {
		if r.Trace != nil && (r.Kind <= request.StaleQuery || r.Kind == request.Deliver) {
			t.begin(r)
		}
	}
	t.next.Submit(reqs)
}

// requestSpan is the span in which a request is carried out.
type requestSpan struct {
	tracer trace.Tracer
	ctx    context.Context // contains the span
	span   trace.Span
}

// name sets the span as the request's trace, in place of the caller's span.
func (run *requestSpan) name(r *request.Request) {
	if r.ID != "" {
		run.span.SetAttributes(keyCommandID.String(string(r.ID)))
	}
	after := r.Trace.Flags & journal.TraceAfterTimer
	r.Trace = traceOf(run.span.SpanContext())
	r.Trace.Flags |= after
}

// running replaces the completer of a request while its span is open.
type running struct {
	requestSpan
	asked *request.Trace
	waits request.Completer
}

func (t *Requests) begin(r *request.Request) {
	what, asked := keyCommand, spanContextOf(&r.Trace.TraceContext)
	if r.Kind == request.Query || r.Kind == request.StaleQuery {
		what = keyQuery
	}
	with := []trace.SpanStartOption{trace.WithAttributes(keyType.String(r.Entity.Type), keyID.String(r.Entity.ID), what.String(r.Name))}
	within := context.Background()
	if r.Kind == request.Deliver {
		// The message may be delivered much later, and may cause a large number
		// of further messages. So its trace is separate.
		from := r.Delivery.Source
		with = append(with, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(trace.Link{SpanContext: asked}),
			trace.WithAttributes(keySourceType.String(from.Type), keySourceID.String(from.ID)))
	} else {
		within = trace.ContextWithSpanContext(within, asked)
	}
	ctx, span := t.tracer.Start(within, "entity "+r.Entity.Type+"/"+r.Name, with...)
	if !span.IsRecording() {
		return // the record keeps the caller's span
	}
	run := &running{requestSpan: requestSpan{tracer: t.tracer, ctx: ctx, span: span}, asked: r.Trace, waits: r.Done}
	run.name(r)
	r.Done = run
}

// Complete implements request.Completer. It must not use the request after
// passing it on, because the caller may reuse or retry it.
func (run *running) Complete(r *request.Request) {
	run.end(r, time.Now())
	r.Trace, r.Done = run.asked, run.waits
	run.waits.Complete(r)
}

func (run *requestSpan) end(r *request.Request, now time.Time) {
	v := r.Exec.CallTimes()
	if !v.Since.IsZero() && !v.Began.Before(v.Since) {
		run.child("queue", v.Since, v.Began)
		if v.Loaded.After(v.Since) && !v.Loaded.After(v.Began) {
			run.child("load", v.Since, v.Loaded)
		}
		run.child("guest", v.Began, v.Ended, keyModule.String(v.Module.String()))
		if r.Records() && r.Result.Err == nil && !r.Result.Duplicate {
			run.child("commit", v.Ended, now)
		}
	}
	res := &r.Result
	run.span.SetAttributes(keyShard.Int64(int64(r.Shard)))
	if res.Err == nil {
		run.span.SetAttributes(keySequence.Int64(int64(res.Sequence)), keyFuel.Int64(int64(res.Fuel)))
		if res.Duplicate {
			run.span.SetAttributes(keyDuplicate.Bool(true))
		}
	} else if rejected, ok := errors.AsType[*request.RejectedError](res.Err); ok {
		run.span.SetAttributes(keyRejected.String(rejected.Code))
	} else {
		run.span.SetAttributes(keyError.String(res.Err.Error()))
		if isFault(res.Err) {
			run.span.SetStatus(codes.Error, res.Err.Error())
		}
	}
	run.span.End(trace.WithTimestamp(now))
}

func (run *requestSpan) child(name string, from, to time.Time, about ...attribute.KeyValue) {
	_, span := run.tracer.Start(run.ctx, name, trace.WithTimestamp(from), trace.WithAttributes(about...))
	span.End(trace.WithTimestamp(to))
}

// isFault reports whether an error is a fault of a guest or of the system. An
// invalid request, a redirect to another node, or a timer that was set again is
// not a fault.
func isFault(err error) bool {
	if errors.Is(err, timers.ErrStale) {
		return false
	}
	o := request.OutcomeOf(err)
	if o == nil {
		return true
	}
	switch o.Code {
	case request.Internal, request.DataLoss, request.DeadlineExceeded, request.Unimplemented:
		return true
	}
	return false
}
