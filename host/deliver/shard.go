package deliver

import (
	"bytes"
	"math"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shard is the outbox of one shard on its way out.
type shard struct {
	id   sharding.ShardID
	term sharding.Term

	// Every message up to cursor is in a flow, or was left behind by one that has
	// more, or is over.
	cursor   journal.ItemID
	unread   bool // there may be messages after the cursor
	again    bool // something that was left behind may be read now
	flows    map[pair]*flow
	all      []*flow   // the same, in an order that the inputs alone decide
	ready    []*flow   // to be looked at
	inMemory int       // messages in the flows
	bytes    int       // of these
	at       time.Time // when something is due; zero for never
	retry    bool      // a reading failed

	arrived, gaveUp ackList
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

func (s *shard) add(f *flow) {
	f.place = len(s.all)
	s.flows[f.pair], s.all = f, append(s.all, f)
}

func (s *shard) remove(f *flow) {
	last := len(s.all) - 1
	s.all[f.place] = s.all[last]
	s.all[f.place].place = f.place
	s.all[last] = nil
	s.all = s.all[:last]
	delete(s.flows, f.pair)
}

// dirty reports that there is something to do now.
func (s *shard) dirty(o *Options) bool { return len(s.ready) > 0 || s.again && s.roomy(o) }

// roomy reports room for more than a few messages, so that reading is worth it.
func (s *shard) roomy(o *Options) bool {
	return 2*s.inMemory <= o.ShardHeld && 2*s.bytes <= o.HeldBytes
}

// look has a flow looked at in this step.
func (s *shard) look(f *flow) {
	if !f.queued {
		f.queued = true
		s.ready = append(s.ready, f)
	}
}

func (s *shard) lookAtAll() {
	s.at, s.again, s.retry = time.Time{}, s.again || s.retry, false
	for _, f := range s.all {
		s.look(f)
	}
}

// wake has the shard looked at by then.
func (s *shard) wake(at time.Time) {
	if s.at.IsZero() || at.Before(s.at) {
		s.at = at
	}
}

func (s *shard) room(o *Options) bool { return s.inMemory < o.ShardHeld && s.bytes < o.HeldBytes }

// fill reads messages into the flows that have room for them: new ones, and for
// flows that left some behind these. What it cannot take stays in the outbox.
func (c *core) fill(s *shard) {
	if !s.again || !s.roomy(&c.opts) {
		return
	}
	s.again = false
	from := s.cursor
	for _, f := range s.all {
		f.left = false
		if f.wants(c) && f.after.Less(from) {
			from = f.after
		}
	}
	ended, passed := true, true // the outbox; the cursor
	err := c.readOutbox(s, from, func(m *journal.Message) error {
		if c.takeMessage(s, from, m) {
			return nil
		}
		ended, passed = false, s.cursor.Less(m.ID)
		return c.opts.Stop
	})
	if err != nil {
		c.opts.Logger.Warn("the outbox of a shard cannot be read", "shard_id", s.id, "error", err)
		s.retry = true
		s.wake(c.now.Add(c.opts.MaxWait))
		return
	}
	s.unread = !ended
	for _, f := range s.all {
		if passed && f.more && !f.left && !f.after.Less(from) {
			f.more = false
		}
	}
}

// takeMessage takes a message that was read, and reports whether there is room
// for another.
func (c *core) takeMessage(s *shard, from journal.ItemID, m *journal.Message) bool {
	if !s.room(&c.opts) {
		return false
	}
	k := pair{m.Source, m.Destination}
	f, isNew := s.flows[k], s.cursor.Less(m.ID)
	switch {
	case isNew && f == nil:
		if len(s.flows) >= c.opts.Pairs {
			return false
		}
		f = &flow{pair: k, after: before(m.ID)}
		s.add(f)
	case f == nil, !f.after.Less(m.ID):
		return true // it is on its way, or over
	}
	if isNew {
		s.cursor = m.ID
	}
	// What follows something that was left behind has to wait for it.
	if f.left || f.more && f.after.Less(from) || !f.takes(c) {
		f.more, f.left = true, true
		return true
	}
	f.after = m.ID
	kept := *m
	kept.Payload = bytes.Clone(m.Payload)
	f.items = append(f.items, &item{message: kept})
	s.inMemory++
	s.bytes += cost(m)
	s.look(f)
	return true
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
