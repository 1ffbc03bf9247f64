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

// core makes the dispatcher's decisions. It has no goroutine and no clock.
//
// Problem: messages of a channel (source entity, destination entity) must arrive in
// order and take effect exactly once, although nodes fail, leaders move and
// destinations may be unavailable for days. One destination that does not accept
// its messages must not delay the others, and there may be more such channels
// than fit in memory.
//
// Approach: the source's commit writes a message to the outbox of its shard, and
// apply numbers it within its channel. The core reads the outboxes of the shards
// that the node leads, in log order, and sends up to a window of messages per
// channel (flow). The destination accepts only the next number of a channel and
// stores it with the record, so a message that is sent twice has one effect. An
// arrived message is acknowledged by an entry of the source's shard, which
// deletes it from the outbox. If a message fails, its channel drops what it holds
// in memory and probes with its first message alone (waiting).
//
// Invariants: all messages of a channel before the first one in memory have
// arrived, unless the flow is marked as unsure; an outcome, a rejection or a
// dead letter is proposed before the message disappears; and what is held, in
// flight and tracked is bounded per channel, shard, type and node.
//
// The core keeps nothing that is not in an outbox. If the leadership moves, the
// next leader reads the outbox from the start and continues.
//
// Rejected: an outbox ordered by channel, in which new messages would have to be
// announced channel by channel; command ids instead of numbers, because their
// window ends; and delivery by the executor of the source, which would wait for
// other nodes. See docs/decisions/exactly-once-messages.md.
type core struct {
	opts   Options
	inputs outside
	now    time.Time
	shards map[sharding.ShardID]*shard
	order  []*shard // the same shards in a fixed order, so that equal inputs lead to equal decisions
	turn   int      // index in order of the shard that comes first in a step
	flight int
	// probing is how many of the flights are probes.
	probing int
	asking  *typeLookup
	unknown map[string]time.Time // types that do not exist, and when their lookup began
	batch   []*request.Request
	logAt   time.Time // no channel that waits is logged before this time
	counts  *counts
	stuck   *stuckReceivers
}

// counts are the values behind Stats.
type counts struct{ delivered, retries, faulted, givenUp, waiting atomic.Uint64 }

// outside delivers the core's inputs.
type outside interface {
	put(news)
	confirm(*typeLookup)
}

func newCore(opts Options, in outside) core {
	return core{opts: opts, inputs: in, shards: make(map[sharding.ShardID]*shard), unknown: make(map[string]time.Time), counts: &counts{}, stuck: &stuckReceivers{}}
}

// typeLookup is a lookup that finds out whether an entity type exists, and
// its result.
type typeLookup struct {
	name    string
	at      time.Time
	unknown bool
}

// lead updates the shards that the node leads. If a shard's term changed, the
// core drops its state and reads the shard's outbox again from the start.
func (c *core) lead(led []Lead) {
	terms := make(map[sharding.ShardID]sharding.Term, len(led))
	for _, l := range led {
		terms[l.Shard] = l.Term
		if s := c.shards[l.Shard]; s == nil || s.term != l.Term {
			c.stuck.dropShard(l.Shard)
			c.shards[l.Shard] = newShard(l)
			c.order = append(c.order, c.shards[l.Shard])
		}
	}
	for id := range c.shards {
		if _, leads := terms[id]; !leads {
			delete(c.shards, id)
			c.stuck.dropShard(id)
		}
	}
	c.order = slices.DeleteFunc(c.order, func(s *shard) bool { return c.shards[s.id] != s })
}

// take processes one input.
func (c *core) take(n *news) {
	switch {
	case n.flight != nil:
		c.finishFlight(n.flight)
	case n.acks != nil:
		c.finishAcks(n.acks)
	case n.asked != nil:
		c.finishLookup(n.asked)
	default:
		if s := c.shards[n.shard]; s != nil {
			s.unread, s.again = true, true
		}
	}
}

// step reads, delivers and acknowledges messages. The work for each shard is
// bounded; the next step does the rest.
func (c *core) step() {
	long := 0
	for i := range c.order {
		s := c.order[(c.turn+i)%len(c.order)] // rotate, so that shards take turns at being the first to use the room in flight
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

// wakeAt returns when there is something to do without an input; zero means
// never.
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
			at = sooner(at, s.waiting.deferred[0].until)
		}
	}
	return at
}

// sooner returns the earlier of two times. A zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// acks is one proposal that acknowledges or gives up messages of a shard.
type acks struct {
	inputs  outside
	shard   *shard
	of      *ackList
	list    []request.Arrived
	request request.Request
}

// Complete implements request.Completer.
func (a *acks) Complete(*request.Request) { a.inputs.put(news{acks: a}) }

// maxAcks is the maximum number of messages in one proposal.
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
	a := &acks{inputs: c.inputs, shard: s, of: list, list: list.waiting[:n:n]}
	list.busy, list.waiting = true, list.waiting[n:]
	d := &request.Delivery{Arrived: a.list}
	if list == &s.gaveUp {
		d = &request.Delivery{GaveUp: a.list}
	}
	a.request = request.Request{Kind: request.Acknowledge, Delivery: d, ExpectedSequence: request.NoExpectation, Done: a}
	c.opts.Shards.Propose(s.id, &a.request)
}

func (c *core) finishAcks(a *acks) {
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

func (c *core) readOutbox(s *shard, after journal.ItemID, fn func(*journal.Message) error) error {
	return c.opts.Outboxes.Outbox(context.Background(), s.id, after, fn)
}
