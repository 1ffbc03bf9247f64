package entity

import (
	"context"

	"github.com/hostd/hostd/host/entity/timers"
)

// guestRunner performs work for a core that may take long. Its methods never
// block for long.
type guestRunner interface {
	// Call makes a guest call and returns true. If it returns false, the call
	// continues elsewhere and its end is reported by an event.
	Call(*guestCall) bool
	// Start performs a reading elsewhere. Its results arrive as events.
	Start(Reading)
}

// Reading is a read for a core: of a history, due timers, ids of existing
// entities or a message number.
type Reading interface {
	// Do reads and passes its results to put. It may block, and does not touch
	// the core.
	Do(ctx context.Context, put func(coreEvent))
}

// Do reads a history until the load is cancelled. It stays at most two chunks
// ahead of the executor.
func (l *load) Do(_ context.Context, put func(coreEvent)) {
	if l.ctx.Err() != nil {
		return
	}
	first := 2 // chunks that may be sent before the executor has taken one
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

// Do reads the message number.
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
	*alwaysOnScan
	reader existingReader
}

func (x existingReading) Do(ctx context.Context, put func(coreEvent)) {
	x.alwaysOnScan.Do(ctx, x.reader)
	put(coreEvent{Kind: existingRead, existing: x.alwaysOnScan})
}
