package entityapi

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/sharding"
)

// pendingView implements Pending.
type pendingView struct{ *Parts }

func (s pendingView) Timers(ctx context.Context, shard sharding.ShardID, q timerQuery) (timerPage, error) {
	leave, err := s.scan(ctx)
	if err != nil {
		return timerPage{}, err
	}
	defer leave()
	page, err := s.Machine.TimerPage(ctx, shard, timers.Query{After: (*timers.Place)(q.After), By: q.By, Type: q.Type, Limit: q.Limit, Scan: q.Scan})
	return timerPage{Timers: page.Timers, More: page.More, Last: timerPlace(page.Last)}, err
}

func (s pendingView) Place(t *journal.Timer) timerPlace { return timerPlace(timers.PlaceOf(t)) }

func (s pendingView) Sends(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error {
	leave, err := s.scan(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.Machine.Outbox(ctx, shard, after, fn)
}
