package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
)

// call tries one unary call until it succeeds, fails for good or time is up.
// Every attempt that fails goes on to the next node.
func call[Req, Res any](ctx context.Context, c *Client, timeout time.Duration, req *Req,
	do func(*node, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*Res, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	pause := newBackoff(c.opts)
	carried := false
	for {
		n, at := c.current()
		res, err := do(n, ctx, connect.NewRequest(req))
		if err == nil {
			return res.Msg, nil
		}
		f := judge(err)
		if f.retry && ctx.Err() == nil {
			carried = carried || f.carried
			c.next(at)
			if pause.wait(ctx) == nil {
				continue
			}
		}
		if carried && !settled(f.code) {
			return nil, unsettled(typed(err))
		}
		return nil, typed(err)
	}
}

// backoff is the pause between attempts.
type backoff struct {
	next, most, least time.Duration
}

func newBackoff(o Options) backoff {
	return backoff{next: o.MinBackoff, least: o.MinBackoff, most: o.MaxBackoff}
}

// wait pauses between half and the whole of the current length, then doubles it.
func (b *backoff) wait(ctx context.Context) error {
	t := time.NewTimer(b.next/2 + rand.N(b.next/2+1))
	defer t.Stop()
	b.next = min(2*b.next, b.most)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backoff) reset() { b.next = b.least }

// isFatal reports that a stream cannot work whatever the number of attempts.
func isFatal(err error) bool {
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
