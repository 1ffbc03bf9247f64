package host

import (
	"bytes"
	"context"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// letterService implements rpc.Letters.
type letterService struct{ n *Node }

func (s letterService) List(ctx context.Context, shard sharding.ShardID, after journal.ItemID, limit int) (out []journal.Letter, err error) {
	err = s.n.machine.Letters(ctx, shard, after, func(l *journal.Letter) error {
		if len(out) == limit {
			return eventlog.ErrStopReading
		}
		kept := *l
		kept.Payload = bytes.Clone(l.Payload)
		out = append(out, kept)
		return nil
	})
	return out, err
}

func (s letterService) Retry(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error {
	l, err := s.n.machine.Letter(shard, id)
	if err != nil {
		return err
	}
	if l == nil {
		return rpc.ErrNoLetter
	}
	if l.Number == 0 {
		return s.post(ctx, shard, &entity.Request{Kind: entity.SendAgain, Delivery: &entity.Delivery{Letter: id}})
	}
	_, err = (stateService{s.n}).ask(ctx, &entity.Request{
		Kind: entity.Redeliver, Entity: l.Destination, Name: l.Command, Payload: l.Payload, ID: entity.SendCommand(l.Source, l.Number), ServerID: true,
		Delivery: &entity.Delivery{Source: l.Source, Letter: id},
	})
	return err
}

func (s letterService) Discard(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error {
	l, err := s.n.machine.Letter(shard, id)
	if err != nil {
		return err
	}
	if l == nil {
		return rpc.ErrNoLetter
	}
	return s.post(ctx, shard, &entity.Request{Kind: entity.Discard, Entity: l.Destination, Delivery: &entity.Delivery{Letter: id}})
}

// post gives a request to a shard's lane and waits for the outcome, as long as
// ctx lasts.
func (s letterService) post(ctx context.Context, shard sharding.ShardID, q *entity.Request) error {
	w := inspection{left: 1, done: make(chan struct{})}
	q.ExpectedSequence, q.Done = entity.NoExpectation, &w
	s.n.region.Post(shard, q)
	select {
	case <-w.done:
		return q.Result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
