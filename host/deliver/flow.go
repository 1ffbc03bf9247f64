package deliver

import (
	"errors"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// flow is the messages of one channel in order, on their way to the
// destination:
//
//	held ──offer──▶ flying ──arrived──▶ acknowledged
//	 ▲                 │
//	 │               failed, once no message of the channel is flying
//	 │                 ▼
//	 └───probe────── waiting: nothing is held
//
// Up to a window of messages are in flight at a time. The destination accepts
// no message before its turn, so if one fails, those after it come back too.
// The channel then waits: it remembers only the id of its first message, and
// that message alone is read and retried until it arrives.
type flow struct {
	channel channel
	items   []*item
	after   journal.ItemID // all messages of the channel up to this id are held or done
	last    journal.ItemID // the newest message of the channel that was read, or a later id

	queued   bool // in shard.ready
	lags     bool // in shard.lagging
	stalls   bool // in shard.stalled
	deferred bool // in waiting.deferred
	// stuckBytes is the size of the first message while it is an outcome that
	// failed, and counted in core.stuck; 0 otherwise.
	stuckBytes int
	reading    bool // catchUp is reading messages for this flow
	flying     int
	broken     bool      // a message has failed, or no message may be sent
	suspect    bool      // no message has arrived since a message failed, so only one message is sent at a time
	long       bool      // counted in waiting.long
	unsure     bool      // the outbox may have earlier messages of the channel
	lost       bool      // the destination expects an earlier message, which a lap must find
	since      time.Time // first failure since a message arrived; zero for none
	until      time.Time
	wait       time.Duration
	gap        journal.ChannelCounters

	// The following fields describe the first message, once it was sent or the
	// channel has waited.
	first  journal.ItemID
	front  uint64 // number of the message
	faults int
	refuse *request.RejectedError
	reason error // why the message failed

	// A lookup of the destination's type that began at coveredAt or later counts
	// for all messages up to coveredTo, because they were sent before the lookup
	// began.
	coveredTo journal.ItemID
	coveredAt time.Time
}

// item is a message that is held in memory.
type item struct {
	message journal.Message
	load    *load // the load that counts the message
	flying  bool
	arrived bool
}

// leftBehind reports whether the outbox may have messages of the channel that
// were read but are not held.
func (f *flow) leftBehind() bool { return f.after.Less(f.last) }

// window returns how many messages of the channel may be held. It shrinks as
// the shard holds more, so that channels with slow destinations share half of
// the room and leave the other half to channels with few messages.
func (f *flow) window(c *core, s *shard) int {
	if f.suspect {
		return 1
	}
	return min(c.opts.ChannelWindow, max(1, (c.opts.ShardHeld/2-s.inMemory.messages)/4))
}

// takes reports whether there is room for another message.
func (f *flow) takes(c *core, s *shard) bool { return !f.broken && len(f.items) < f.window(c, s) }

// wants reports whether messages that were left behind should be read now.
func (f *flow) wants(c *core, s *shard) bool {
	return f.leftBehind() && f.takes(c, s) && 2*len(f.items) <= c.opts.ChannelWindow
}

// flight is one message on its way to its destination and back.
type flight struct {
	inputs  outside
	shard   *shard
	flow    *flow
	item    *item
	probe   bool
	request request.Request
}

// Complete implements request.Completer.
func (f *flight) Complete(*request.Request) { f.inputs.put(news{flight: f}) }

// offer advances the flows that are stalled or ready.
func (c *core) offer(s *shard) {
	for len(s.stalled) > 0 && c.flight < c.opts.InFlight {
		f := s.stalled[0]
		s.stalled[0] = nil
		s.stalled = s.stalled[1:]
		f.stalls = false
		if s.flows[f.channel] == f {
			c.advance(s, f)
		}
	}
	for len(s.ready) > 0 {
		f := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		f.queued = false
		if s.flows[f.channel] == f {
			c.advance(s, f)
		}
	}
	s.ready = nil
}

// advance drops messages that arrived and sends the next messages of a channel.
func (c *core) advance(s *shard, f *flow) {
	for len(f.items) > 0 && f.items[0].arrived {
		c.drop(s, f)
	}
	if !c.opts.Types.IsServed(f.channel.to.Type) {
		f.broken = true
	}
	switch {
	case f.deferred || f.broken && f.flying > 0:
		return
	case f.broken:
		f.broken = false
		for len(f.items) > 0 && c.mayGiveUp(s, f, f.items[0].message.ID) && !c.opts.Types.IsServed(f.channel.to.Type) {
			m := &f.items[0].message
			c.giveUp(s, f, m.ID, m.Number)
			c.drop(s, f)
		}
		if len(f.items) > 0 {
			c.deferChannel(s, f)
			return
		}
	}
	if len(f.items) == 0 && !f.leftBehind() && f.flying == 0 {
		s.remove(c, f)
		return
	}
	if f.wants(c, s) {
		s.lag(f)
	}
	for _, it := range f.items {
		if it.flying || it.arrived {
			continue
		}
		if c.flight >= c.opts.InFlight {
			if !f.stalls {
				f.stalls = true
				s.stalled = append(s.stalled, f)
			}
			return
		}
		c.fly(s, f, it)
	}
}

// drop removes the first message of a flow, which has arrived or was given
// up.
func (c *core) drop(s *shard, f *flow) {
	it := f.items[0]
	f.items[0] = nil
	f.items = f.items[1:]
	it.load.remove(&it.message)
	s.again = s.again || s.unread || len(s.lagging) > 0
}

// noteFirst records the channel's first message. If the first message has
// changed, noteFirst resets what was recorded about the previous one.
func (f *flow) noteFirst(m *journal.Message) {
	if f.front != m.Number {
		f.first, f.front, f.faults, f.refuse = m.ID, m.Number, 0, nil
	}
}

// fly hands a message to the router.
func (c *core) fly(s *shard, f *flow, it *item) {
	m := &it.message
	d := &request.Delivery{Source: m.Source, Number: m.Number, After: f.gap.AfterOf(m.Number), OnReply: m.OnReply, OnReject: m.OnReject, SentAt: m.At, Hops: m.Hops, Answer: m.Answer, Token: m.Token}
	if it == f.items[0] {
		f.noteFirst(m)
		d.Refuse = f.refuse
	}
	fl := &flight{inputs: c.inputs, shard: s, flow: f, item: it, probe: it.load == &s.waiting.probes}
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
	if fl.probe {
		c.probing++
	}
	c.batch = append(c.batch, &fl.request)
}

// finishFlight processes the outcome of a flight.
func (c *core) finishFlight(fl *flight) {
	c.flight--
	if fl.probe {
		c.probing--
	}
	s, f := fl.shard, fl.flow
	if c.shards[s.id] != s {
		return
	}
	f.flying--
	fl.item.flying = false
	s.look(f)
	err := fl.request.Result.Err
	if fl.item == f.items[0] {
		c.noteOutcome(s, f, &fl.item.message, err)
	}
	if err != nil {
		c.handleFailure(s, f, fl.item, err)
		return
	}
	fl.item.arrived = true
	f.wait, f.since, f.until = 0, time.Time{}, time.Time{}
	f.suspect, f.unsure, f.lost = false, false, false
	s.waiting.isLong(f, false)
	c.counts.delivered.Add(1)
	s.arrived.waiting = append(s.arrived.waiting, request.Arrived{ID: fl.item.message.ID, Source: fl.item.message.Source})
}

// handleFailure decides when a message is sent again.
func (c *core) handleFailure(s *shard, f *flow, it *item, err error) {
	c.counts.retries.Add(1)
	first := it == f.items[0]
	f.broken, f.since = true, sooner(f.since, c.now)
	if first {
		f.reason = err
	}
	var gap *request.GapError
	var fault *request.GuestFaultError
	switch {
	case errors.As(err, &gap):
		if first {
			c.repairGap(s, f, it, gap)
		}
	case errors.As(err, &fault):
		if first {
			c.countFault(s, f, it)
		}
	case errors.Is(err, sharding.ErrInvalidName):
		if first { // no entity can have this name
			f.refuse, f.until = &request.RejectedError{Code: request.CodeNotFound, Message: err.Error()}, time.Time{}
		}
	default:
		c.retryLater(f)
	}
}

// repairGap handles a destination that expects a message before the flow's
// first message. Either earlier messages were given up, so the channel's
// count has changed, or the outbox has earlier messages.
func (c *core) repairGap(s *shard, f *flow, it *item, gap *request.GapError) {
	count, err := c.opts.Outboxes.ChannelCounters(s.id, f.channel.from, f.channel.to)
	if n := it.message.Number; err == nil && count.AfterOf(n) != f.gap.AfterOf(n) {
		f.gap = count
		return
	}
	// An earlier message of the channel may be in the outbox if the channel was
	// forgotten. A lap finds the channel's first message.
	if f.lost = f.unsure || f.waitsLong(c); f.lost && !f.unsure && !s.waiting.forgot {
		c.opts.Logger.Error("the destination of a channel expects an earlier message that is not in the outbox", "shard_id", s.id,
			"entity_type", f.channel.from.Type, "destination_type", f.channel.to.Type, "number", it.message.Number, "wanted", gap.Wanted)
	}
	c.retryLater(f)
}

// countFault counts the guest faults of a message's destination. After
// Options.Attempts faults, the message is rejected on behalf of the
// destination.
func (c *core) countFault(s *shard, f *flow, it *item) {
	f.unsure = false // the guest was called, so it was this message's turn
	if f.faults++; f.faults >= c.opts.Attempts {
		c.counts.faulted.Add(1)
		c.opts.Logger.Warn("the destination of a message fails repeatedly; rejecting the message", "shard_id", s.id,
			"destination_type", f.channel.to.Type, "command", it.message.Command, "attempts", f.faults)
		f.refuse = &request.RejectedError{Code: request.CodeInternal, Message: "the entity failed in every attempt to deliver the message"}
		f.until = time.Time{}
		return
	}
	f.until = c.now.Add(min(c.opts.FaultWait<<min(f.faults-1, 20), 5*time.Minute))
}

// retryLater backs the channel off, for a time that doubles up to MaxWait.
func (c *core) retryLater(f *flow) {
	if f.until.After(c.now) {
		return
	}
	f.wait = max(c.opts.MinWait, min(2*f.wait, c.opts.MaxWait))
	f.until = c.now.Add(f.wait)
}
