package workload

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
)

// call sends one command or query after another until the load is stopped.
func (l *Load) call(rng *rand.Rand) {
	for l.rest(rng) {
		a := l.next(rng)
		patience, short := l.opts.Patience, rng.IntN(100) < giveUpShare
		if short {
			patience = time.Duration(1 + rng.Int64N(int64(50*time.Millisecond)))
		}
		outcome := l.try(a, patience)
		if short && outcome == history.Failed {
			l.cutShort.Add(1)
		}
		for outcome == history.Unknown && !a.Query && rng.IntN(100) < persistShare && l.ctx.Err() == nil {
			outcome = l.try(a, l.opts.Patience)
		}
	}
}

// rest pauses before a call. It returns false if the load is stopped.
func (l *Load) rest(rng *rand.Rand) bool {
	mean := l.pause.Load()
	if mean == 0 {
		return l.ctx.Err() == nil
	}
	timer := time.NewTimer(time.Duration(mean/2 + rng.Int64N(mean)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// try makes one attempt. Stopping the load does not cancel it, so that most
// outcomes become known.
func (l *Load) try(a history.Attempt, patience time.Duration) history.Outcome {
	ctx, cancel := context.WithTimeout(l.calls, patience)
	defer cancel()
	a.Start = l.opts.History.Now()
	if a.Query {
		answer, err := l.opts.Client.Query(ctx, client.Query{EntityType: a.Entity.Type, EntityID: a.Entity.ID, Name: a.Name})
		return l.record(a, client.Reply{Data: answer.Data, Sequence: answer.Sequence}, err)
	}
	reply, err := l.opts.Client.Send(ctx, command(a))
	return l.record(a, reply, err)
}

// refusedPause is the time for which a stream waits after a node rejected a
// command, because a node that is not ready yet rejects thousands of commands
// per second.
const refusedPause = 5 * time.Millisecond

// stream keeps several commands in flight on one stream until the load is
// stopped, then waits for the remaining commands.
func (l *Load) stream(rng *rand.Rand) {
	var refused atomic.Bool
	s := l.opts.Client.Stream(client.StreamOptions{Outstanding: l.opts.Outstanding, ResendFor: l.opts.Patience})
	for l.rest(rng) {
		a := l.next(rng)
		if a.Query {
			continue
		}
		if refused.Swap(false) {
			time.Sleep(refusedPause)
		}
		a.Start = l.opts.History.Now()
		err := s.Send(l.ctx, command(a), func(reply client.Reply, err error) {
			if l.record(a, reply, err) == history.Failed {
				refused.Store(true)
			}
		})
		if err != nil {
			break // the load is stopped
		}
	}
	ctx, cancel := context.WithTimeout(l.calls, l.opts.Patience)
	defer cancel()
	_ = s.Close(ctx) // unanswered commands were recorded as unknown
}
