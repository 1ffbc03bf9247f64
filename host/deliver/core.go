package deliver

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// core is the pump's decisions: no goroutine, and no clock of its own.
type core struct {
	opts   Options
	pump   outside
	now    time.Time
	shards map[sharding.ShardID]*shard
	order  []*shard // of shards, so that the same inputs lead to the same decisions
	turn   int      // of order, that comes first
	flight int
	// probing is how many of these are probes.
	probing int
	asking  *asked
	unknown map[string]time.Time // types that do not exist, and when that was asked
	batch   []*request.Request
	logAt   time.Time // when a pair that waits may be logged again
	counts  *counts
}

// counts are for metrics.
type counts struct{ delivered, retries, faulted, givenUp, waiting atomic.Uint64 }

// outside is where the core's inputs come from.
type outside interface {
	put(news)
	confirm(*asked)
}

func newCore(opts Options, pump outside) core {
	return core{opts: opts, pump: pump, shards: make(map[sharding.ShardID]*shard), unknown: make(map[string]time.Time), counts: &counts{}}
}

// asked is a question whether an entity type exists, and the answer.
type asked struct {
	name    string
	at      time.Time
	unknown bool
}

// lead takes which shards the node leads. One that it leads in another term
// begins anew, with what its outbox has then.
func (c *core) lead(led []Lead) {
	terms := make(map[sharding.ShardID]sharding.Term, len(led))
	for _, l := range led {
		terms[l.Shard] = l.Term
		if s := c.shards[l.Shard]; s == nil || s.term != l.Term {
			c.shards[l.Shard] = newShard(l)
			c.order = append(c.order, c.shards[l.Shard])
		}
	}
	for id := range c.shards {
		if _, leads := terms[id]; !leads {
			delete(c.shards, id)
		}
	}
	c.order = slices.DeleteFunc(c.order, func(s *shard) bool { return c.shards[s.id] != s })
}

// take takes one input.
func (c *core) take(n *news) {
	switch {
	case n.flight != nil:
		c.landed(n.flight)
	case n.acks != nil:
		c.acknowledged(n.acks)
	case n.asked != nil:
		c.answered(n.asked)
	default:
		if s := c.shards[n.shard]; s != nil {
			s.unread, s.again = true, true
		}
	}
}

// step reads, delivers and acknowledges what it can. Its work is bounded for
// each shard; what is left is done at the next step.
func (c *core) step() {
	long := 0
	for i := range c.order {
		s := c.order[(c.turn+i)%len(c.order)] // so that each is the first to get room in flight
		s.tick(c.now)
		c.lap(s)
		c.probe(s)
		c.offer(s)
		c.fill(s)
		c.offer(s)
		c.acknowledge(s, &s.arrived)
		c.acknowledge(s, &s.gaveUp)
		long += s.waiting.long
	}
	c.turn++
	c.counts.waiting.Store(uint64(long))
	if len(c.batch) > 0 {
		c.opts.Router.Submit(c.batch)
		clear(c.batch)
		c.batch = c.batch[:0]
	}
}

// wakeAt is when there is something to do without an input; zero is never.
func (c *core) wakeAt() (at time.Time) {
	for _, s := range c.order {
		at = sooner(at, s.at)
		if s.again && s.isRoomy(&c.opts) {
			at = sooner(at, c.now)
		}
		if s.waiting.forgot {
			at = sooner(at, s.waiting.lapAt)
		}
		if c.mayProbe(s) {
			at = sooner(at, s.waiting.parked[0].until)
		}
	}
	return at
}

// sooner returns the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// acks are messages of a shard that are being acknowledged, or given up.
type acks struct {
	pump    outside
	shard   *shard
	of      *ackList
	list    []request.Arrived
	request request.Request
}

// Complete implements request.Completer.
func (a *acks) Complete(*request.Request) { a.pump.put(news{acks: a}) }

// maxAcks is how many messages are acknowledged at once.
const maxAcks = 1024

func (c *core) acknowledge(s *shard, list *ackList) {
	switch {
	case list.busy || len(list.waiting) == 0:
		return
	case list.until.After(c.now):
		s.wake(list.until)
		return
	}
	n := min(len(list.waiting), maxAcks)
	a := &acks{pump: c.pump, shard: s, of: list, list: list.waiting[:n:n]}
	list.busy, list.waiting = true, list.waiting[n:]
	d := &request.Delivery{Arrived: a.list}
	if list == &s.gaveUp {
		d = &request.Delivery{GaveUp: a.list}
	}
	a.request = request.Request{Kind: request.Acknowledge, Delivery: d, ExpectedSequence: request.NoExpectation, Done: a}
	c.opts.Shards.Propose(s.id, &a.request)
}

func (c *core) acknowledged(a *acks) {
	s, list := a.shard, a.of
	if c.shards[s.id] != s {
		return
	}
	list.busy = false
	if a.request.Result.Err != nil {
		list.waiting = append(a.list, list.waiting...)
		list.until = c.now.Add(200 * time.Millisecond)
		s.wake(list.until)
	}
}

// readOutbox reads a shard's outbox.
func (c *core) readOutbox(s *shard, after journal.ItemID, fn func(*journal.Message) error) error {
	return c.opts.Outboxes.Outbox(context.Background(), s.id, after, fn)
}
