package host

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// ask gives a request of a person to its entity and waits for the outcome, as
// long as ctx lasts.
func (s stateService) ask(ctx context.Context, q *entity.Request) (entity.Result, error) {
	w := inspection{left: 1, done: make(chan struct{})}
	q.ExpectedSequence, q.Done = entity.NoExpectation, &w
	if until, ok := ctx.Deadline(); ok {
		q.Deadline = until
	}
	s.n.region.Submit([]*entity.Request{q})
	select {
	case <-w.done:
		return q.Result, q.Result.Err
	case <-ctx.Done():
		return entity.Result{}, ctx.Err()
	}
}

// Passivate implements rpc.States.
func (s stateService) Passivate(ctx context.Context, id sharding.EntityID) error {
	_, err := s.ask(ctx, &entity.Request{Kind: entity.Passivate, Entity: id})
	return err
}

// ClearFaults implements rpc.States.
func (s stateService) ClearFaults(ctx context.Context, id sharding.EntityID) error {
	_, err := s.ask(ctx, &entity.Request{Kind: entity.Clear, Entity: id})
	return err
}

// act gives it a request that is not to take effect twice, and was tried first
// then; zero is now.
func (s stateService) act(ctx context.Context, q *entity.Request, tried time.Time) (journal.Sequence, error) {
	q.First, q.Again = tried, !tried.IsZero()
	if !q.Again {
		q.First = time.Now()
	}
	res, err := s.ask(ctx, q)
	return res.Sequence, err
}

// SkipTimer implements rpc.States.
func (s stateService) SkipTimer(ctx context.Context, id sharding.EntityID, timer string, command journal.CommandID, tried time.Time) (journal.Sequence, error) {
	return s.act(ctx, &entity.Request{Kind: entity.SkipTimer, Entity: id, Name: timer, ID: command}, tried)
}

// Delete implements rpc.States.
func (s stateService) Delete(ctx context.Context, id sharding.EntityID, command journal.CommandID, tried time.Time) (journal.Sequence, error) {
	return s.act(ctx, &entity.Request{Kind: entity.Delete, Entity: id, ID: command}, tried)
}

const (
	// shownTimers bounds the timers of an entity that are told of.
	shownTimers = 256
	// countedEvents bounds the history that the fuel of an entity is summed over,
	// and in which acts are looked for.
	countedEvents = 65536
)

// history sums what the commands of an entity's last events have cost, and finds
// what persons did to it meanwhile.
func (s stateService) history(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, last journal.Sequence) (fuel uint64, done []rpc.Act, err error) {
	from := journal.Sequence(0)
	if last > countedEvents {
		from = last - countedEvents + 1
	}
	info, err := s.n.machine.Info(shard, id)
	if err != nil {
		return 0, nil, err
	}
	if info.Cut != nil {
		from = max(from, info.Cut.Sequence)
	}
	var found acts
	err = s.n.machine.Read(ctx, shard, id, from, func(_ journal.Position, r *journal.Record) error {
		found.look(r)
		for _, section := range r.Sections {
			if section.Kind == journal.SectionFuel && len(section.Data) == 8 {
				fuel += binary.LittleEndian.Uint64(section.Data)
			}
		}
		return ctx.Err()
	})
	return fuel, found.newestFirst(), err
}
