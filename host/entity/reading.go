package entity

import (
	"context"

	"github.com/hostd/hostd/host/entity/timers"
)

// guestRunner does for a core what may take long. Its methods never block.
type guestRunner interface {
	// Visit executes a call and returns true. A runner that returns false goes on
	// with the call elsewhere and tells its end by an event.
	Visit(*guestCall) bool
	// Start has something read elsewhere. What is found comes back as events.
	Start(Reading)
}

// Reading is something that a core wants to be read: a history, timers that are
// due, the ids of entities that exist, the number of a message.
type Reading interface {
	// Do reads and puts what it finds. It may block, and touches nothing of the
	// core.
	Do(ctx context.Context, put func(coreEvent))
}

// Do reads a history, until the load is given up. It is never far ahead of what
// the executor has taken.
func (l *load) Do(_ context.Context, put func(coreEvent)) {
	if l.ctx.Err() != nil {
		return
	}
	first := 2 // chunks that may be under way before the executor has taken one
	opts := &l.entity.shard.opts
	l.Read(l.ctx, opts.Histories, opts.LoadChunkBytes, func(ch *historyChunk) error {
		if first > 0 {
			first--
		} else {
			select {
			case <-l.credit:
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
		put(coreEvent{Kind: chunkRead, load: l, chunk: ch})
		return nil
	})
}

// Do reads a number.
func (q *inquiry) Do(_ context.Context, put func(coreEvent)) {
	q.number, q.err = q.histories.Received(q.shard, q.id, q.source)
	put(coreEvent{Kind: inquiryAnswered, inquiry: q})
}

// timerReading reads due timers.
type timerReading struct {
	*timers.Scan
	histories Histories
}

func (t timerReading) Do(ctx context.Context, put func(coreEvent)) {
	t.Scan.Do(ctx, t.histories)
	put(coreEvent{Kind: timersRead, scan: t.Scan})
}

// existingReading reads the ids of entities.
type existingReading struct {
	*autostartScan
	reader existingReader
}

func (x existingReading) Do(ctx context.Context, put func(coreEvent)) {
	x.autostartScan.Do(ctx, x.reader)
	put(coreEvent{Kind: existingRead, existing: x.autostartScan})
}
