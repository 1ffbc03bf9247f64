package entityapi

import (
	"context"
	"fmt"
	"sync"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// inspect asks the executors for the state of entities in memory. The result is
// nil for an entity whose shard this node does not lead.
func (p *Parts) inspect(ctx context.Context, ids []sharding.EntityID) ([]*request.Info, error) {
	w := inspection{left: len(ids), done: make(chan struct{})}
	reqs := make([]*request.Request, len(ids))
	for i, id := range ids {
		reqs[i] = &request.Request{Kind: request.Inspect, Entity: id, ExpectedSequence: request.NoExpectation, Done: &w}
	}
	p.ShardRouter.Submit(append([]*request.Request(nil), reqs...))
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := make([]*request.Info, len(ids))
	for i, r := range reqs {
		out[i] = r.Result.Info
	}
	return out, nil
}

// ask submits an operator's request to its entity and waits for the outcome
// until ctx ends.
func (p *Parts) ask(ctx context.Context, q *request.Request) (request.Result, error) {
	w := inspection{left: 1, done: make(chan struct{})}
	q.ExpectedSequence, q.Done = request.NoExpectation, &w
	if until, ok := ctx.Deadline(); ok {
		q.Deadline = until
	}
	p.ShardRouter.Submit([]*request.Request{q})
	select {
	case <-w.done:
		return q.Result, q.Result.Err
	case <-ctx.Done():
		return request.Result{}, abandonedError(ctx, q.Kind)
	}
}

// Post submits a request to a shard's executor and waits for the outcome until
// ctx ends.
func (p *Parts) Post(ctx context.Context, shard sharding.ShardID, q *request.Request) error {
	w := inspection{left: 1, done: make(chan struct{})}
	q.ExpectedSequence, q.Done = request.NoExpectation, &w
	p.ShardRouter.Propose(shard, q)
	select {
	case <-w.done:
		return q.Result.Err
	case <-ctx.Done():
		return abandonedError(ctx, q.Kind)
	}
}

// abandonedError returns the error of a request whose caller stopped waiting. A
// change that was submitted may still take effect.
func abandonedError(ctx context.Context, kind request.Kind) error {
	if kind.Changes() {
		return fmt.Errorf("%w: %w", request.ErrOutcomeUnknown, ctx.Err())
	}
	return ctx.Err()
}

// inspection is a request.Completer that waits for a number of requests.
type inspection struct {
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (w *inspection) Complete(*request.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left == 0 {
		close(w.done)
	}
}
