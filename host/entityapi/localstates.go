package entityapi

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// states implements States.
type states struct{ *Parts }

// Replay implements States.
func (s states) Replay(ctx context.Context, id sharding.EntityID, at *journal.Sequence) (replay.ReplayedState, error) {
	return s.Replays.StateAt(ctx, whoCalls(ctx), id, at)
}

// Passivate implements States.
func (s states) Passivate(ctx context.Context, id sharding.EntityID) error {
	_, err := s.ask(ctx, &request.Request{Kind: request.Passivate, Entity: id})
	return err
}

// ClearFaults implements States.
func (s states) ClearFaults(ctx context.Context, id sharding.EntityID) error {
	_, err := s.ask(ctx, &request.Request{Kind: request.Clear, Entity: id})
	return err
}

// adminAction submits a request that must not take effect twice. tried is the
// time of its first attempt; zero means now.
func (s states) adminAction(ctx context.Context, q *request.Request, tried time.Time) (journal.Sequence, error) {
	q.First, q.Again = tried, !tried.IsZero()
	if !q.Again {
		q.First = time.Now()
	}
	res, err := s.ask(ctx, q)
	return res.Sequence, err
}

// SkipTimer implements States.
func (s states) SkipTimer(ctx context.Context, id sharding.EntityID, timer string, command journal.CommandID, tried time.Time) (journal.Sequence, error) {
	return s.adminAction(ctx, &request.Request{Kind: request.SkipTimer, Entity: id, Name: timer, ID: command}, tried)
}

// Delete implements States.
func (s states) Delete(ctx context.Context, id sharding.EntityID, command journal.CommandID, tried time.Time) (journal.Sequence, error) {
	return s.adminAction(ctx, &request.Request{Kind: request.Delete, Entity: id, ID: command}, tried)
}

const (
	// shownTimers limits the timers of an entity that are reported.
	shownTimers = 256
	// countedEvents limits the events of an entity over which its fuel is summed
	// and in which actions are searched.
	countedEvents = 65536
)

// history sums the fuel of the commands of an entity's last events, and collects
// the operator actions among them.
func (p *Parts) history(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, last journal.Sequence) (fuel uint64, done []AdminAction, err error) {
	from := journal.Sequence(0)
	if last > countedEvents {
		from = last - countedEvents + 1
	}
	info, err := p.Machine.Info(shard, id)
	if err != nil {
		return 0, nil, err
	}
	if info.Cut != nil {
		from = max(from, info.Cut.Sequence)
	}
	var found actions
	err = p.Machine.Read(ctx, shard, id, from, func(_ journal.Position, r *journal.Record) error {
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
