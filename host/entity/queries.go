package entity

import (
	"context"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/request"
)

// Hot returns the executor's busiest entities, at most limit. It waits for the
// executor's next turn, at most until ctx ends.
func (l *executor) Hot(ctx context.Context, limit int) (report resident.HotReport, err error) {
	return survey(ctx, l, func() (resident.HotReport, error) { return l.core.Hot(limit), nil })
}

// ListQuarantined returns the ids of quarantined entities in order, at most q.Limit. It
// fails with a NotLeaderError if the executor does not lead the shard. It waits
// for the executor's next turn, at most until ctx ends.
func (l *executor) ListQuarantined(ctx context.Context, q QuarantineQuery) ([]string, error) {
	return survey(ctx, l, func() ([]string, error) { return l.core.ListQuarantined(q) })
}

// survey calls ask in the executor's next turn and returns its result.
func survey[T any](ctx context.Context, l *executor, ask func() (T, error)) (none T, err error) {
	var answer T
	var failed error
	done := make(chan struct{})
	l.put(coreEvent{Kind: eventAsked, Ask: func() {
		answer, failed = ask()
		close(done)
	}})
	select {
	case <-done:
		return answer, failed
	case <-l.done:
		return none, request.ErrStopped
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
