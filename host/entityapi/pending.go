package entityapi

import (
	"context"

	"github.com/hostd/hostd/host/entityapi/pending"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/sharding"
)

// pendingView implements pending.Source.
type pendingView struct{ *Parts }

func (s pendingView) Timers(ctx context.Context, shard sharding.ShardID, q pending.Query) (pending.Page, error) {
	leave, err := s.scan(ctx)
	if err != nil {
		return pending.Page{}, err
	}
	defer leave()
	page, err := s.Machine.TimerPage(ctx, shard, timers.Query{After: (*timers.Place)(q.After), By: q.By, Type: q.Type, Limit: q.Limit, Scan: q.Scan})
	return pending.Page{Timers: page.Timers, More: page.More, Last: pending.Place(page.Last)}, err
}

func (s pendingView) Place(t *journal.Timer) pending.Place { return pending.Place(timers.PlaceOf(t)) }

func (s pendingView) Sends(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error {
	leave, err := s.scan(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.Machine.Outbox(ctx, shard, after, fn)
}
