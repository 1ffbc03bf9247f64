package deliver

import (
	"bytes"
	"math"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shard delivers the outbox of one shard. Two reads take messages from the
// outbox: readNew continues after the cursor, and catchUp reads messages that
// flows left behind because their window or the shard's memory was full. A
// channel whose first message failed holds no message; see waiting.
type shard struct {
	id   sharding.ShardID
	term sharding.Term

	// For every message up to cursor, the channel has a flow or was forgotten,
	// or the message is done.
	cursor   journal.ItemID
	unread   bool // there may be messages after the cursor
	again    bool // a read may find a message that there is room for
	flows    map[channel]*flow
	ready    []*flow // flows to advance in this step
	lagging  []*flow // flows that left messages behind
	stalled  []*flow // flows that wait for room in flight
	inMemory load
	at       time.Time // when something is due; zero means never
	retry    bool      // a read failed
	waiting  waiting

	arrived, gaveUp ackList
}

// load counts messages in memory.
type load struct{ messages, bytes int }

func (l *load) add(m *journal.Message) { l.messages, l.bytes = l.messages+1, l.bytes+cost(m) }

func (l *load) remove(m *journal.Message) { l.messages, l.bytes = l.messages-1, l.bytes-cost(m) }

// isBelow reports whether the load is below a fraction of what a shard may
// hold.
func (l *load) isBelow(o *Options, numerator, denominator int) bool {
	return l.messages < max(1, o.ShardHeld*numerator/denominator) && l.bytes < max(1, o.HeldBytes*numerator/denominator)
}

// ackList is messages that are done and must be removed from the outbox.
type ackList struct {
	waiting []request.Arrived
	busy    bool
	until   time.Time
}

// channel identifies a channel: the source and the destination entity.
type channel struct{ from, to sharding.EntityID }

func newShard(l Lead) *shard {
	return &shard{id: l.Shard, term: l.Term, unread: true, again: true, flows: make(map[channel]*flow)}
}

// remove removes a flow.
func (s *shard) remove(c *core, f *flow) {
	s.waiting.isLong(f, false)
	c.stuck.set(s.id, f, false, 0)
	delete(s.flows, f.channel)
	s.again = s.again || s.unread
}

// tick handles the shard's timer.
func (s *shard) tick(now time.Time) {
	if !s.at.IsZero() && !s.at.After(now) {
		s.at, s.again, s.retry = time.Time{}, s.again || s.retry, false
	}
}

// isRoomy reports whether there is room for more than a few messages, so that a
// read is worth its cost.
func (s *shard) isRoomy(o *Options) bool { return s.inMemory.isBelow(o, 3, 4) }

// look queues a flow to be advanced in this step.
func (s *shard) look(f *flow) {
	if !f.queued {
		f.queued = true
		s.ready = append(s.ready, f)
	}
}

// lag makes catchUp read the messages that a flow left behind.
func (s *shard) lag(f *flow) {
	if !f.lags {
		f.lags = true
		s.lagging = append(s.lagging, f)
	}
	s.again = true
}

// wake makes the core look at the shard no later than at.
func (s *shard) wake(at time.Time) {
	if s.at.IsZero() || at.Before(s.at) {
		s.at = at
	}
}

// sliceRows bounds the messages that one read of a step visits.
const sliceRows = 4096

// fill reads messages into the flows that have room for them. Messages for
// which there is no room stay in the outbox. Old and new messages get at least
// an eighth of the memory each, so that neither can starve the other.
func (c *core) fill(s *shard) {
	if !s.again || !s.isRoomy(&c.opts) {
		return
	}
	s.again = false
	err := c.catchUp(s)
	if err == nil && s.unread {
		err = c.readNew(s)
	}
	if err != nil {
		c.opts.Logger.Warn("cannot read the outbox of a shard", "shard_id", s.id, "error", err)
		s.again, s.retry = false, true
		s.wake(c.now.Add(c.opts.MaxWait))
	}
}

// readNew reads messages after the cursor.
func (c *core) readNew(s *shard) error {
	n, ended := 0, true
	err := c.readOutbox(s, s.cursor, func(m *journal.Message) error {
		if n == sliceRows {
			s.again = true
		}
		f := s.flows[channel{m.Source, m.Destination}]
		if n == sliceRows || !s.inMemory.isBelow(&c.opts, 1, 1) || f == nil && !s.waiting.makeRoom(c, s, true) {
			ended = false
			return c.opts.Stop
		}
		n++
		s.cursor = m.ID
		if f == nil {
			f = s.begin(m, s.waiting.forgot)
		}
		behind := f.leftBehind()
		f.last = m.ID
		switch {
		case f.deferred: // the channel's messages are read after its first message has arrived
		case !behind && f.takes(c, s):
			c.takeMessage(s, f, m, &s.inMemory)
		default:
			s.lag(f)
		}
		return nil
	})
	if err == nil {
		s.unread = !ended
	}
	return err
}

// begin starts a flow with the channel's messages from m on. unsure means that
// earlier messages of the channel may have been forgotten.
func (s *shard) begin(m *journal.Message, unsure bool) *flow {
	f := &flow{channel: channel{m.Source, m.Destination}, after: before(m.ID), last: before(m.ID), unsure: unsure}
	s.flows[f.channel] = f
	return f
}

// catchUp reads messages that flows left behind, up to the cursor, in one scan
// for all flows. A flow whose window is full does not hold up the scan. Each
// flow records how far it was read.
func (c *core) catchUp(s *shard) error {
	open, from := 0, s.cursor
	lagging := s.lagging[:0]
	for _, f := range s.lagging {
		if f.lags = s.flows[f.channel] == f && !f.deferred && f.leftBehind(); !f.lags {
			continue
		}
		lagging = append(lagging, f)
		if f.reading = f.wants(c, s); f.reading {
			open++
			if f.after.Less(from) {
				from = f.after
			}
		}
	}
	clear(s.lagging[len(lagging):])
	s.lagging = lagging
	if open == 0 {
		return nil
	}
	n, at, ended := 0, from, true
	err := c.readOutbox(s, from, func(m *journal.Message) error {
		if s.cursor.Less(m.ID) {
			return c.opts.Stop
		}
		if n == sliceRows {
			s.again = true
		}
		if n == sliceRows || open == 0 || !s.inMemory.isBelow(&c.opts, 7, 8) {
			ended = false
			return c.opts.Stop
		}
		n++
		at = m.ID
		f := s.flows[channel{m.Source, m.Destination}]
		if f == nil || !f.reading || !f.after.Less(m.ID) {
			return nil
		}
		if f.reading = f.takes(c, s); f.reading {
			c.takeMessage(s, f, m, &s.inMemory)
			f.reading = f.leftBehind()
		}
		if !f.reading {
			open--
		}
		return nil
	})
	for _, f := range s.lagging {
		if !f.reading {
			continue
		}
		f.reading = false
		switch {
		case err != nil:
		case ended:
			f.after = f.last
			s.look(f) // the channel may have no more messages
		case f.after.Less(at):
			f.after = at
			s.look(f)
		}
	}
	return err
}

// takeMessage adds the next message of a flow, which was read from the outbox.
func (c *core) takeMessage(s *shard, f *flow, m *journal.Message, to *load) {
	f.after = m.ID
	kept := *m
	kept.Payload = bytes.Clone(m.Payload)
	it := &item{message: kept, load: to}
	f.items = append(f.items, it)
	to.add(&it.message)
	s.look(f)
}

// cost is the memory that a message is charged for, in bytes.
func cost(m *journal.Message) int { return 256 + len(m.Payload) }

// before returns the greatest id that is less than id.
func before(id journal.ItemID) journal.ItemID {
	switch {
	case id.Item > 0:
		id.Item--
	case id.Ordinal > 0:
		id.Ordinal, id.Item = id.Ordinal-1, math.MaxUint16
	default:
		id = journal.ItemID{Index: id.Index - 1, Ordinal: math.MaxUint32, Item: math.MaxUint16}
	}
	return id
}
