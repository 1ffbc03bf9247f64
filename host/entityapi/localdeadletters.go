package entityapi

import (
	"bytes"
	"context"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// localDeadLetters implements deadLetters.
type localDeadLetters struct{ *Parts }

func (s localDeadLetters) List(ctx context.Context, shard sharding.ShardID, after journal.ItemID, limit, most int) (out []journal.DeadLetter, more bool, err error) {
	leave, err := s.scan(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	taken := 0
	err = s.Machine.DeadLetters(ctx, shard, after, func(l *journal.DeadLetter) error {
		if more = len(out) == limit || len(out) > 0 && taken >= most; more {
			return eventlog.ErrStopReading
		}
		kept := *l
		kept.Payload = bytes.Clone(l.Payload)
		out = append(out, kept)
		taken += len(l.Payload) + len(l.Message)
		return nil
	})
	return out, more, err
}

func (s localDeadLetters) Retry(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error {
	l, err := s.Machine.DeadLetter(shard, id)
	if err != nil {
		return err
	}
	if l == nil {
		return errNoDeadLetter
	}
	if l.Number == 0 {
		return s.Post(ctx, shard, &request.Request{Kind: request.SendAgain, Delivery: &request.Delivery{DeadLetter: id}})
	}
	_, err = s.ask(ctx, &request.Request{
		Kind: request.Redeliver, Entity: l.Destination, Name: l.Command, Payload: l.Payload, ID: request.SendCommand(l.Source, l.Number), ServerID: true,
		Delivery: &request.Delivery{Source: l.Source, DeadLetter: id, Token: l.Token},
	})
	return err
}

func (s localDeadLetters) Discard(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error {
	l, err := s.Machine.DeadLetter(shard, id)
	if err != nil {
		return err
	}
	if l == nil {
		return errNoDeadLetter
	}
	return s.Post(ctx, shard, &request.Request{Kind: request.Discard, Entity: l.Destination, Delivery: &request.Delivery{DeadLetter: id}})
}
