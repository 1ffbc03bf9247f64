package entity

import (
	"context"
	"runtime"
	"sync"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/sharding"
)

// guestRunner performs slow work for a core. Its methods never
// block for long.
type guestRunner interface {
	// Call makes a guest call and returns true. If it returns false, the call
	// continues on another goroutine, which reports its end by an event.
	Call(*guestCall) bool
	// Start performs a reading elsewhere. Its results arrive as events.
	Start(reading)
}

// reading is a read for a core: of a history, due timers, ids of existing
// entities or a message number.
type reading interface {
	// Do reads and passes its results to put. It may block, and does not touch
	// the core.
	Do(ctx context.Context, put func(coreEvent))
}

// Do reads a history, and ends early if the load is cancelled. It stays at
// most two chunks ahead of the executor.
func (l *load) Do(_ context.Context, put func(coreEvent)) {
	if l.ctx.Err() != nil {
		return
	}
	first := 2 // number of chunks that may be sent before the executor has taken one
	opts := &l.entity.shard.opts
	turn := readTurn{of: opts.longReads}
	defer turn.leave()
	l.Beyond = func() error { return turn.enter(l.ctx) }
	l.Read(l.ctx, opts.Histories, opts.LoadChunkBytes, func(ch *historyChunk) error {
		if first > 0 {
			first--
		} else {
			turn.leave()
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

// kind is the kind of a load for the loader pool: the caller that waits for it,
// or the entity's type if no authenticated caller waits.
func (l *load) kind() string {
	if who := l.entity.firstCaller(); who != nil {
		return string(who.Bytes())
	}
	return l.ID.Type
}

// readTurn limits slow readings, such as those of scans and long loads, to half
// of the processors. A reading computes nearly all the time, so more of them
// would make every goroutine through which a command passes wait for its time
// slice. A reading releases its turn while it waits for the executor.
type readTurn struct {
	of  chan struct{} // one element for each turn that is taken
	has bool
}

// newLongReads returns the turns of a node.
func newLongReads() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)) }

func (r *readTurn) enter(ctx context.Context) error {
	if r.has {
		return nil
	}
	select {
	case r.of <- struct{}{}:
		r.has = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *readTurn) leave() {
	if r.has {
		<-r.of
		r.has = false
	}
}

// costlyBytes is the number of record bytes after which a load counts as costly. A
// load that starts from a snapshot usually reads less.
const costlyBytes = 1 << 20

// costlyMost bounds the entities of an executor whose loads are known to be
// costly.
const costlyMost = 4096

// costlyLoads remembers the entities whose last loads were costly. An entity
// that never had an event has no snapshot, so each of its loads reads as many
// records as its idempotency window can hold.
type costlyLoads struct {
	mu sync.Mutex
	of map[sharding.EntityID]struct{}
}

func (c *costlyLoads) has(id sharding.EntityID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, costly := c.of[id]
	return costly
}

// note notes how much a load has read.
func (c *costlyLoads) note(l *load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, known := c.of[l.ID]; {
	case l.read < costlyBytes:
		if l.ctx.Err() == nil { // the load was not cancelled
			delete(c.of, l.ID)
		}
	case known:
	case c.of == nil || len(c.of) >= costlyMost: // forget the other entities, so that the next load of each counts as quick
		c.of = map[sharding.EntityID]struct{}{l.ID: {}}
	default:
		c.of[l.ID] = struct{}{}
	}
}

// Do reads the message number.
func (q *inquiry) Do(_ context.Context, put func(coreEvent)) {
	q.number, q.err = q.histories.Received(q.shard, q.id, q.source)
	put(coreEvent{Kind: inquiryAnswered, inquiry: q})
}

// timerReading reads due timers.
type timerReading struct {
	*timers.Scan
	histories histories
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
