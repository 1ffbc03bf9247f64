package rpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/entity"
)

// calls runs single requests. It is safe for concurrent use.
type calls struct {
	runtime  Runtime
	arrivals arrivals
	deadline deadlines
	pool     sync.Pool
}

// call is one request and the goroutine that waits for it. Whoever comes last,
// the runtime's completion or the end of the wait, returns it to the pool.
type call struct {
	owner *calls
	req   entity.Request
	one   [1]*entity.Request
	done  chan struct{}
	timer *time.Timer
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
	w.req = entity.Request{}
	c.pool.Put(w)
}

// run submits the request that fill makes and waits for its outcome, no
// longer than ctx and the bounds on deadlines allow. A command that is in
// flight when the wait ends goes on; its outcome is then unknown to the caller.
func (c *calls) run(ctx context.Context, fill func(*entity.Request)) (entity.Result, error) {
	if err := c.arrivals.check(ctx); err != nil {
		return entity.Result{}, err
	}
	w := c.get()
	now := time.Now()
	deadline := c.deadline.of(ctx, now)
	w.req.First = now
	fill(&w.req)
	w.req.Deadline = deadline
	w.req.Done = w
	w.one[0] = &w.req
	w.timer.Reset(deadline.Sub(now))
	c.runtime.Submit(w.one[:])

	var err error
	select {
	case <-w.done:
	case <-ctx.Done():
		if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			err = errNoOutcome
		}
	case <-w.timer.C:
		err = errNoOutcome
	}
	w.timer.Stop()
	if err != nil && w.state.CompareAndSwap(callWaiting, callAbandoned) {
		return entity.Result{}, err
	}
	if err != nil {
		<-w.done // completed at the same moment
	}
	res := w.req.Result
	c.put(w)
	return res, res.Err
}

// Complete implements entity.Completer.
func (w *call) Complete(*entity.Request) {
	if w.state.CompareAndSwap(callWaiting, callCompleted) {
		w.done <- struct{}{} // has room: one value a round
		return
	}
	w.owner.put(w)
}
