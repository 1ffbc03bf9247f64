package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// call runs a unary call that any node can answer. It retries until the call
// succeeds, fails for good, or the time is over, and moves to the next node
// after every failed attempt.
func call[Req, Res any](ctx context.Context, c *Client, timeout time.Duration, req *Req,
	do func(*node, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*Res, error) {
	res, _, err := callAbout(ctx, c, route{}, timeout, req, do)
	return res, err
}

// callAbout is like call, for a call that goes to the leader of an entity's
// shard if the leader is known. It also returns the node that answered.
func callAbout[Req, Res any](ctx context.Context, c *Client, about route, timeout time.Duration, req *Req,
	do func(*node, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*Res, *node, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	pause := newBackoff(c.opts)
	carried := false
	var refused error // the last rejection by a node that did not run the attempt
	for {
		if about != (route{}) {
			c.freshen(ctx)
		}
		n, at := c.target(about)
		asked := connect.NewRequest(req)
		res, err := do(n, ctx, asked)
		if err == nil {
			return res.Msg, n, nil
		}
		f := judge(err)
		if f.carried {
			if why := unsendable(req); why != nil {
				return nil, n, why
			}
		}
		reads := asked.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects
		if reads {
			f.carried = false // a read has no effect, so its outcome cannot be unknown
		}
		if f.retry && ctx.Err() == nil {
			carried = carried || f.carried
			if connect.IsWireError(err) && !f.carried && f.code == connect.CodeUnavailable {
				refused = clientError(err)
			}
			c.noteFailure(about, n, at, connect.IsWireError(err))
			if pause.wait(ctx) == nil {
				continue
			}
		}
		if carried && !settlesOutcome(f.code) {
			return nil, n, unknownOutcome(clientError(err))
		}
		switch {
		case refused == nil || ctx.Err() == nil:
		case f.code == connect.CodeDeadlineExceeded:
			return nil, n, deadlineError(refused, clientError(err), reads)
		case f.code == connect.CodeUnavailable && !connect.IsWireError(err):
			return nil, n, refused // the answer of a node says more than a failed connection
		}
		return nil, n, clientError(err)
	}
}

// deadlineError returns the failure of a call whose deadline passed during an
// attempt that followed a node's rejection. The rejection explains why the call
// took so long. For a call without effects, the rejection is the outcome. For
// other calls, the last attempt may have taken effect, so the code must remain
// deadline_exceeded.
func deadlineError(refused, last error, reads bool) error {
	var because *Error
	if !errors.As(refused, &because) {
		return last
	}
	e := *because
	if reads {
		e.Message += "; the deadline passed during a later attempt"
		return &e
	}
	e.Code, e.Message = connect.CodeDeadlineExceeded, "the deadline passed during a later attempt; an earlier attempt failed: "+because.Error()
	return &e
}

// unsendable returns why a request cannot be sent to any node, or nil if it can
// be sent.
func unsendable(req any) error {
	m, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	if _, err := proto.Marshal(m); err != nil {
		return &Error{Code: connect.CodeInvalidArgument, Message: "the request cannot be sent: " + err.Error()}
	}
	return nil
}

// backoff is the pause between attempts.
type backoff struct {
	next, most, least time.Duration
}

func newBackoff(o Options) backoff {
	return backoff{next: o.MinBackoff, least: o.MinBackoff, most: o.MaxBackoff}
}

// wait pauses between half of the current length and all of it, then doubles
// it.
func (b *backoff) wait(ctx context.Context) error {
	t := time.NewTimer(b.length())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// length returns the length of the next pause.
func (b *backoff) length() time.Duration {
	d := b.next/2 + jitter(b.next/2)
	b.next = min(2*b.next, b.most)
	return d
}

// jitter returns a random part of d.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

func (b *backoff) reset() { b.next = b.least }

// isFatal reports whether a stream can never work, no matter how often it is
// retried.
func isFatal(err error) bool {
	var other *OtherClusterError
	if errors.As(err, &other) {
		return other.all
	}
	var e *connect.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return true
	}
	return false
}
