package entityapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/quota"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/host/traces"
)

// Runtime runs commands and queries.
type Runtime interface {
	// Submit submits requests to their entities. It never blocks and does not
	// keep the slice. Every request is completed exactly once, possibly before
	// Submit returns. Requests of one caller to one entity run in the order in
	// which they were submitted.
	Submit(reqs []*request.Request)
}

// calls runs single requests. It is safe for concurrent use.
type calls struct {
	Runtime  Runtime
	Waiting  *admission.Waiting
	Arrivals admission.Arrivals
	Deadline admission.Deadlines
	Quotas   *quota.Quotas // if nil, there are no limits

	pool sync.Pool
}

// call is one request and the goroutine that waits for it. The request is
// completed by the runtime, and the wait may end earlier; the later of the two
// events returns the call to the pool.
type call struct {
	owner *calls
	req   request.Request
	one   [1]*request.Request
	done  chan struct{}
	timer *time.Timer
	share admission.Share
	bytes int64 // bytes taken from share
	payer *quota.Account
	state atomic.Uint32
}

const (
	callWaiting uint32 = iota
	callCompleted
	callAbandoned
)

func (c *calls) get() *call {
	if w, _ := c.pool.Get().(*call); w != nil {
		w.state.Store(callWaiting)
		return w
	}
	w := &call{owner: c, done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

func (c *calls) put(w *call) {
	w.share.Give(w.bytes)
	w.req, w.share, w.bytes, w.payer = request.Request{}, admission.Share{}, 0, nil
	c.pool.Put(w)
}

// Run submits the request that fill makes, and waits for its outcome until ctx
// ends or the deadline that Deadline allows passes. If a command is in flight
// when the wait ends, it continues, and its outcome is unknown to the caller.
func (c *calls) Run(ctx context.Context, fill func(*request.Request)) (request.Result, error) {
	if err := c.Arrivals.Check(ctx); err != nil {
		return request.Result{}, err
	}
	w := c.get()
	now := time.Now()
	deadline := c.Deadline.Of(ctx, now)
	w.req.First = now
	w.req.Trace = traces.Of(ctx)
	fill(&w.req)
	bytes := admission.BytesOf(&w.req)
	w.share = c.Waiting.Of(ctx)
	if err := w.share.Take(bytes); err != nil {
		c.put(w)
		return request.Result{}, err
	}
	w.bytes = bytes
	payer := c.Quotas.Of(ctx)
	if err := payer.Take(len(w.req.Payload)); err != nil {
		c.put(w)
		return request.Result{}, err
	}
	w.payer = payer
	w.req.Deadline = deadline
	w.req.Done = w
	w.one[0] = &w.req
	w.timer.Reset(deadline.Sub(now))
	kind := w.req.Kind // read now, because the runtime owns the request after Submit
	c.Runtime.Submit(w.one[:])

	var err error
	select {
	case <-w.done:
	case <-ctx.Done():
		if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			err = lateError(kind)
		}
	case <-w.timer.C:
		err = lateError(kind)
	}
	w.timer.Stop()
	if err != nil && w.state.CompareAndSwap(callWaiting, callAbandoned) {
		return request.Result{}, err
	}
	if err != nil {
		<-w.done // the request was completed at the same moment
	}
	res := w.req.Result
	c.put(w)
	return res, res.Err
}

// lateError returns the error of a request whose deadline passed after it was
// submitted. The outcome is unknown, except for a query, which changes nothing.
func lateError(kind request.Kind) error {
	if kind == request.Query || kind == request.StaleQuery {
		return status.ErrLate
	}
	return status.ErrNoOutcome
}

// Complete implements request.Completer.
func (w *call) Complete(r *request.Request) {
	w.payer.Spend(r.Result.Fuel, len(r.Result.Payload))
	if w.state.CompareAndSwap(callWaiting, callCompleted) {
		w.done <- struct{}{} // never blocks: each use of the call sends at most one value
		return
	}
	w.owner.put(w)
}
