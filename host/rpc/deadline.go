package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
)

// compileDeadline bounds the calls that may compile a module, which takes
// seconds of CPU for a large one, and more on a machine that is busy.
const compileDeadline = time.Minute

// deadlines bounds how long a call may take.
type deadlines struct {
	standard time.Duration // of a call that brings none
	longest  time.Duration // of any call
}

// of returns the deadline of a call that arrives now with the deadline of ctx,
// which is the caller's.
func (d deadlines) of(ctx context.Context, now time.Time) time.Time {
	given, ok := ctx.Deadline()
	if !ok {
		return now.Add(d.standard)
	}
	if latest := now.Add(d.longest); given.After(latest) {
		return latest
	}
	return given
}

// WrapUnary puts the bound into the context of every unary call that does not
// keep it itself.
func (d deadlines) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		now := time.Now()
		until := d.of(ctx, now)
		switch req.Spec().Procedure {
		case entityv1connect.EntityServiceSendProcedure, entityv1connect.EntityServiceQueryProcedure:
			return next(ctx, req) // calls.run bounds its wait without a context
		case modulev1connect.ModuleServiceUploadProcedure, modulev1connect.ModuleServiceActivateProcedure:
			until = now.Add(max(d.longest, compileDeadline))
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
func (d deadlines) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler leaves streams alone: they bound every step instead.
func (d deadlines) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
