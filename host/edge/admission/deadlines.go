package admission

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/request"
)

// compileDeadline is the minimum time limit of calls that may compile a module,
// because compiling a large module needs seconds of CPU time, and longer on
// a busy machine.
const compileDeadline = time.Minute

// Deadlines limits the duration of calls.
type Deadlines struct {
	Standard time.Duration // deadline of a call that has none
	Longest  time.Duration // the maximum for any call
}

// Of returns the deadline of a call that arrives now. The deadline of ctx is the
// caller's own.
func (d Deadlines) Of(ctx context.Context, now time.Time) time.Time {
	given, ok := ctx.Deadline()
	if !ok {
		return now.Add(d.Standard)
	}
	if latest := now.Add(d.Longest); given.After(latest) {
		return latest
	}
	return given
}

// WrapUnary sets the deadline in the context of every unary call, except those
// that limit their wait themselves, and marks the context with request.WithCaller.
func (d Deadlines) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx = request.WithCaller(ctx)
		now := time.Now()
		until := d.Of(ctx, now)
		switch p := procedure.At(req.Spec().Procedure); {
		case p == nil:
		case p.HandChecked:
			return next(ctx, req) // these procedures limit their wait without a context, which is cheaper
		case p.Slow:
			until = now.Add(max(d.Longest, compileDeadline))
			if given, ok := ctx.Deadline(); ok && given.Before(until) {
				until = given
			}
		}
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor; the server has no clients.
func (d Deadlines) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler sets no deadline for streams, because they limit every
// step instead.
func (d Deadlines) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
