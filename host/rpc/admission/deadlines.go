package admission

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/request"
)

// compileDeadline bounds the calls that may compile a module, which takes
// seconds of CPU for a large one, and more on a machine that is busy.
const compileDeadline = time.Minute

// Deadlines bounds how long a call may take.
type Deadlines struct {
	Standard time.Duration // of a call that brings none
	Longest  time.Duration // of any call
}

// Of returns the deadline of a call that arrives now with the deadline of ctx,
// which is the caller's.
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

// WrapUnary puts the bound into the context of every unary call that does not
// keep it itself, and that a caller waits.
func (d Deadlines) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx = request.WithCaller(ctx)
		now := time.Now()
		until := d.Of(ctx, now)
		switch req.Spec().Procedure {
		case entityv1connect.EntityServiceSendProcedure, entityv1connect.EntityServiceQueryProcedure:
			return next(ctx, req) // a call bounds its wait without a context
		case modulev1connect.ModuleServiceUploadProcedure, modulev1connect.ModuleServiceActivateProcedure:
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

// WrapStreamingHandler leaves streams alone: they bound every step instead.
func (d Deadlines) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
