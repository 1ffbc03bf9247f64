package deliver

import (
	"bytes"
	"math"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shard is the outbox of one shard on its way out. Two readings take messages
// from it: readNew goes on behind the cursor, and catchUp reads again what
// flows left behind when their window or the shard's room was full. A pair
// whose first message failed holds no message: see waiting.
type shard struct {
	id   sharding.ShardID
	term sharding.Term

	// The pair of every message up to cursor has a flow, or was forgotten, or the
	// message is over.
	cursor   journal.ItemID
	unread   bool // there may be messages after the cursor
	again    bool // a reading may find something that it can take
	flows    map[pair]*flow
	ready    []*flow // to be looked at
	lagging  []*flow // that left messages behind
	stalled  []*flow // that wait for room in flight
	inMemory load
	at       time.Time // when something is due; zero for never
	retry    bool      // a reading failed
	waiting  waiting

	arrived, gaveUp ackList
}

// load is messages in memory.
type load struct{ messages, bytes int }

func (l *load) add(m *journal.Message) { l.messages, l.bytes = l.messages+1, l.bytes+cost(m) }

func (l *load) remove(m *journal.Message) { l.messages, l.bytes = l.messages-1, l.bytes-cost(m) }

// isBelow reports that the load is below a part of what a shard may hold.
func (l *load) isBelow(o *Options, numerator, denominator int) bool {
	return l.messages < max(1, o.ShardHeld*numerator/denominator) && l.bytes < max(1, o.HeldBytes*numerator/denominator)
}

// ackList is messages that are done with, on their way out of the outbox.
type ackList struct {
	waiting []request.Arrived
	busy    bool
	until   time.Time
}

// pair is two entities: who sends, and who gets it.
type pair struct{ from, to sharding.EntityID }

func newShard(l Lead) *shard {
	return &shard{id: l.Shard, term: l.Term, unread: true, again: true, flows: make(map[pair]*flow)}
}

// remove ends a flow.
func (s *shard) remove(f *flow) {
	s.waiting.isLong(f, false)
	delete(s.flows, f.pair)
	s.again = s.again || s.unread
}

// tick does what is due.
func (s *shard) tick(now time.Time) {
	if !s.at.IsZero() && !s.at.After(now) {
		s.at, s.again, s.retry = time.Time{}, s.again || s.retry, false
	}
}

// isRoomy reports room for more than a few messages, so that reading is worth
// it.
func (s *shard) isRoomy(o *Options) bool { return s.inMemory.isBelow(o, 3, 4) }

// look has a flow looked at in this step.
func (s *shard) look(f *flow) {
	if !f.queued {
		f.queued = true
		s.ready = append(s.ready, f)
	}
}

// lag has a flow's messages read that it left behind.
func (s *shard) lag(f *flow) {
	if !f.lags {
		f.lags = true
		s.lagging = append(s.lagging, f)
	}
	s.again = true
}

// wake has the shard looked at by then.
func (s *shard) wake(at time.Time) {
	if s.at.IsZero() || at.Before(s.at) {
		s.at = at
	}
}

// sliceRows bounds what one reading of a step goes through.
const sliceRows = 4096

// fill reads messages into the flows that have room for them. What it cannot
// take stays in the outbox. Old messages and new ones have at least an eighth
// of the room each, so that neither can keep the others out.
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
		c.opts.Logger.Warn("the outbox of a shard cannot be read", "shard_id", s.id, "error", err)
		s.again, s.retry = false, true
		s.wake(c.now.Add(c.opts.MaxWait))
	}
}

// readNew reads messages behind the cursor.
func (c *core) readNew(s *shard) error {
	n, ended := 0, true
	err := c.readOutbox(s, s.cursor, func(m *journal.Message) error {
		if n == sliceRows {
			s.again = true
		}
		f := s.flows[pair{m.Source, m.Destination}]
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
		case f.parked: // it is read once the first of the pair has arrived
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

// begin makes a flow that has its pair's messages from this one on. It is
// unsure of the pair's earlier messages if some of them may have been
// forgotten.
func (s *shard) begin(m *journal.Message, unsure bool) *flow {
	f := &flow{pair: pair{m.Source, m.Destination}, after: before(m.ID), last: before(m.ID), unsure: unsure}
	s.flows[f.pair] = f
	return f
}

// catchUp reads what flows left behind, up to the cursor. Flows that take
// nothing more do not hold it up, and how far it came is kept in the flows.
func (c *core) catchUp(s *shard) error {
	open, from := 0, s.cursor
	lagging := s.lagging[:0]
	for _, f := range s.lagging {
		if f.lags = s.flows[f.pair] == f && !f.parked && f.leftBehind(); !f.lags {
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
		f := s.flows[pair{m.Source, m.Destination}]
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
			s.look(f) // it may be at its end
		case f.after.Less(at):
			f.after = at
			s.look(f)
		}
	}
	return err
}

// takeMessage takes the next message of a flow that was read.
func (c *core) takeMessage(s *shard, f *flow, m *journal.Message, to *load) {
	f.after = m.ID
	kept := *m
	kept.Payload = bytes.Clone(m.Payload)
	it := &item{message: kept, load: to}
	f.items = append(f.items, it)
	to.add(&it.message)
	s.look(f)
}

// cost is what a message in memory counts for.
func cost(m *journal.Message) int { return 256 + len(m.Payload) }

// before returns the greatest id that is less.
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
