package deliver

import (
	"errors"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// flow is the messages of one pair on their way, in order:
//
//	held ──offer──▶ flying ──arrived──▶ acknowledged
//	 ▲                 │
//	 └──── failed ─────┘  once nothing of the pair is flying any more
//
// A window of them flies at a time. The destination takes none before its
// turn, so that one which fails lets those behind it come back.
type flow struct {
	pair  pair
	items []*item
	after journal.ItemID // all messages of the pair up to it were held, or are over
	more  bool           // the outbox has messages of the pair after it
	left  bool           // of the reading under way: it left some behind

	place   int  // in the shard's list
	queued  bool // in the shard's ready
	flying  int
	broken  bool // one has failed, and others are flying
	until   time.Time
	wait    time.Duration
	unknown bool // the destination's type does not exist
	gap     journal.PairCount

	// Of the first of the items.
	front  uint64 // its number
	faults int
	refuse *request.RejectedError
}

// item is a message that is held.
type item struct {
	message journal.Message
	flying  bool
	arrived bool
}

// longWait is how long a pair is stuck before all but the first of its messages
// leave the memory.
const longWait = time.Second

// takes reports room for another message.
func (f *flow) takes(c *core) bool {
	return len(f.items) < c.opts.PairWindow && (f.wait < longWait || len(f.items) == 0)
}

// wants reports that messages that were left behind are to be read now.
func (f *flow) wants(c *core) bool {
	return f.more && f.takes(c) && 2*len(f.items) <= c.opts.PairWindow
}

// flight is one message on its way to its destination and back.
type flight struct {
	pump    outside
	shard   *shard
	flow    *flow
	item    *item
	request request.Request
}

// Complete implements request.Completer.
func (f *flight) Complete(*request.Request) { f.pump.put(news{flight: f}) }

// offer lets the flows that are to be looked at go on.
func (c *core) offer(s *shard) {
	for len(s.ready) > 0 {
		f := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		f.queued = false
		if s.flows[f.pair] == f {
			c.advance(s, f)
		}
	}
	s.ready = nil
}

// advance drops what arrived and lets the next messages of a pair go.
func (c *core) advance(s *shard, f *flow) {
	for len(f.items) > 0 && f.items[0].arrived {
		c.drop(s, f)
	}
	if f.flying == 0 {
		f.broken = false
	}
	switch {
	case len(f.items) == 0 && !f.more && f.flying == 0:
		s.remove(f)
		s.again = s.again || s.unread
		return
	case f.until.After(c.now):
		s.wake(f.until)
		return
	case f.broken:
		return
	case f.wants(c):
		s.again = true
	}
	if len(f.items) == 0 {
		return
	}
	if f.unknown {
		c.giveUp(s, f)
		return
	}
	if !c.opts.Types.Served(f.pair.to.Type) {
		c.ask(s, f)
		return
	}
	for _, it := range f.items {
		if it.flying || it.arrived {
			continue
		}
		if c.flight >= c.opts.InFlight {
			c.stuck = true
			return
		}
		c.fly(s, f, it)
		if f.refuse != nil {
			return // alone
		}
	}
}

// drop forgets the first message of a flow, which is over.
func (c *core) drop(s *shard, f *flow) {
	it := f.items[0]
	f.items[0] = nil
	f.items = f.items[1:]
	s.inMemory--
	s.bytes -= cost(&it.message)
	s.again = s.again || s.unread
}

// fly hands a message to the router.
func (c *core) fly(s *shard, f *flow, it *item) {
	m := &it.message
	d := &request.Delivery{Source: m.Source, Number: m.Number, After: f.gap.AfterOf(m.Number), OnReply: m.OnReply, OnReject: m.OnReject, SentAt: m.At, Hops: m.Hops}
	if it == f.items[0] {
		if f.front != m.Number {
			f.front, f.faults, f.refuse = m.Number, 0, nil
		}
		d.Refuse = f.refuse
	}
	fl := &flight{pump: c.pump, shard: s, flow: f, item: it}
	fl.request = request.Request{
		Kind: request.Deliver, Entity: m.Destination, Name: m.Command, Payload: m.Payload,
		ID: request.SendCommand(m.Source, m.Number), ServerID: true, ExpectedSequence: request.NoExpectation,
		Deadline: c.now.Add(c.opts.Deadline), Delivery: d, Done: fl,
	}
	if m.Trace != nil {
		fl.request.Trace = &request.Trace{TraceContext: *m.Trace}
	}
	it.flying = true
	f.flying++
	c.flight++
	c.batch = append(c.batch, &fl.request)
}

// landed takes the outcome of a flight.
func (c *core) landed(fl *flight) {
	c.flight--
	s, f := fl.shard, fl.flow
	if c.shards[s.id] != s {
		return
	}
	f.flying--
	fl.item.flying = false
	s.look(f)
	if err := fl.request.Result.Err; err != nil {
		c.failed(s, f, fl.item, err)
		return
	}
	fl.item.arrived = true
	f.wait, f.until = 0, time.Time{}
	c.counts.delivered.Add(1)
	s.arrived.waiting = append(s.arrived.waiting, request.Arrived{ID: fl.item.message.ID, Source: fl.item.message.Source})
}

// failed says when a message goes out again.
func (c *core) failed(s *shard, f *flow, it *item, err error) {
	c.counts.retries.Add(1)
	first := it == f.items[0]
	f.broken = true
	var gap *request.GapError
	var fault *request.GuestFaultError
	switch {
	case errors.As(err, &gap):
		if first {
			c.mend(s, f, it, gap)
		}
	case errors.As(err, &fault):
		if first {
			c.faulted(s, f, it)
		}
	case errors.Is(err, sharding.ErrInvalidName):
		if first { // no such entity can ever be
			f.refuse, f.until = &request.RejectedError{Code: request.CodeNotFound, Message: err.Error()}, time.Time{}
		}
	default:
		c.retryLater(s, f, c.opts.MinWait)
	}
}

// mend finds out why the destination wants another message before the first
// that there is.
func (c *core) mend(s *shard, f *flow, it *item, gap *request.GapError) {
	count, err := c.opts.Outboxes.PairCount(s.id, f.pair.from, f.pair.to)
	if n := it.message.Number; err == nil && count.AfterOf(n) != f.gap.AfterOf(n) {
		f.gap = count
		return
	}
	if f.wait >= longWait {
		c.opts.Logger.Error("the destination of a send wants another before it that is not in the outbox", "shard_id", s.id,
			"entity_type", f.pair.from.Type, "destination_type", f.pair.to.Type, "number", it.message.Number, "wanted", gap.Wanted)
	}
	c.retryLater(s, f, c.opts.MinWait)
}

// faulted counts the failures of a message's destination; when there were
// enough of them the message is refused in its name.
func (c *core) faulted(s *shard, f *flow, it *item) {
	if f.faults++; f.faults >= c.opts.Attempts {
		c.counts.faulted.Add(1)
		c.opts.Logger.Warn("the destination of a send fails again and again; the send is refused", "shard_id", s.id,
			"destination_type", f.pair.to.Type, "command", it.message.Command, "attempts", f.faults)
		f.refuse = &request.RejectedError{Code: request.CodeInternal, Message: "the entity failed at each attempt to carry out the send"}
		f.until = time.Time{}
		return
	}
	f.until = c.now.Add(min(c.opts.FaultWait<<min(f.faults-1, 20), 5*time.Minute))
	s.wake(f.until)
}

// retryLater keeps the messages of a pair back for a while that doubles. Those
// of one that is stuck for long leave the memory but for the first.
func (c *core) retryLater(s *shard, f *flow, least time.Duration) {
	if f.until.After(c.now) {
		return
	}
	f.wait = max(least, min(2*f.wait, c.opts.MaxWait))
	f.until = c.now.Add(f.wait)
	s.wake(f.until)
	if f.wait < longWait || f.flying > 0 || len(f.items) < 2 {
		return
	}
	for _, it := range f.items[1:] {
		s.inMemory--
		s.bytes -= cost(&it.message)
	}
	clear(f.items[1:])
	f.items = f.items[:1]
	f.after, f.more = f.items[0].message.ID, true
}

// ask finds out whether the type of a destination exists.
func (c *core) ask(s *shard, f *flow) {
	if c.asking == nil {
		c.asking = &asked{name: f.pair.to.Type}
		c.pump.confirm(c.asking)
	}
	c.retryLater(s, f, c.opts.MinWait)
}

// giveUp ends the messages of a pair, one after another.
func (c *core) giveUp(s *shard, f *flow) {
	if c.opts.Types.Served(f.pair.to.Type) {
		f.unknown = false
		s.look(f)
		return
	}
	for len(f.items) > 0 {
		m := &f.items[0].message
		c.counts.givenUp.Add(1)
		s.gaveUp.waiting = append(s.gaveUp.waiting, request.Arrived{ID: m.ID, Source: m.Source})
		f.gap.GiveUp(m.Number)
		c.drop(s, f)
	}
	s.look(f)
}
