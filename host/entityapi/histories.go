package entityapi

import (
	"context"
	"sync"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// histories implements subscription.Histories and recordHistories.
type histories struct{ *Parts }

func (s histories) Read(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(*journal.Record) error) error {
	return s.records(ctx, id, from, func(_ journal.Position, r *journal.Record) error { return fn(r) })
}

// Records implements recordHistories. It occupies a scan slot, because a page
// may have 1 MiB and 60,000 events, from which fn makes messages: 50 ms of CPU
// time or more.
func (s histories) Records(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(journal.Position, *journal.Record) error) error {
	leave, err := s.scan(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.records(ctx, id, from, fn)
}

func (s histories) records(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(journal.Position, *journal.Record) error) error {
	info, err := s.Machine.Info(s.ShardRouter.ShardOf(id), id)
	if err != nil {
		return err
	}
	if first := info.FirstSequence(); from < first && first > 1 {
		return &journal.TruncatedError{First: first}
	}
	first := true
	return s.Machine.Read(ctx, s.ShardRouter.ShardOf(id), id, from, func(at journal.Position, r *journal.Record) error {
		if first && r.Expected >= max(from, 1) { // the record was compacted between the two reads
			return &journal.TruncatedError{First: r.Expected + 1}
		}
		first = false
		return fn(at, r)
	})
}

// Span implements recordHistories.
func (s histories) Span(id sharding.EntityID) (first, last journal.Sequence, err error) {
	info, err := s.Machine.Info(s.ShardRouter.ShardOf(id), id)
	return info.FirstSequence(), info.Sequence, err
}

// Action implements recordHistories.
func (s histories) Action(r *journal.Record) (action, timer string) { return actionOf(r) }

// followPeriod is how often a follower polls for records if there are too many
// followers to wake.
const followPeriod = 200 * time.Millisecond

func (s histories) Watch(id sharding.EntityID) (<-chan struct{}, func()) {
	return watch(func() (<-chan struct{}, func(), error) { return s.Machine.Subscribe(s.ShardRouter.ShardOf(id), id) })
}

// watch subscribes, or polls every followPeriod if the subscription fails.
func watch(subscribe func() (wake <-chan struct{}, cancel func(), err error)) (<-chan struct{}, func()) {
	wake, cancel, err := subscribe()
	if err == nil {
		return wake, cancel
	}
	ch, stop := make(chan struct{}, 1), make(chan struct{})
	var once sync.Once
	go func() {
		every := time.NewTicker(followPeriod)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				select {
				case ch <- struct{}{}:
				default:
				}
			case <-stop:
				return
			}
		}
	}()
	return ch, func() { once.Do(func() { close(stop) }) }
}
