package deliver

import (
	"container/heap"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// waiting is the pairs of a shard whose first message failed. They hold no
// message, so that they cannot take the room of pairs whose destinations can be
// had, however many they are. When a pair is due, its first message alone is
// read again and flies as a probe; probes have room of their own.
//
// A shard knows a bounded number of pairs. If there is another, one that waits
// is forgotten: the outbox still has its messages. Laps through the outbox,
// from its oldest message on, find forgotten pairs again, a part of the table
// each time, so every pair has its turn. A flow that begins while pairs are
// forgotten may not have the first message of its pair. The destination does
// not take that out of turn, so the flow is forgotten too; and it never gives a
// message up, which is right only in order. A lap sees messages in order, so
// what it finds is the first message of its pair, unless the pair was known when
// the lap passed that one and has been forgotten since: passed has those pairs.
type waiting struct {
	parked flowHeap
	probes load
	long   int // pairs that have waited for long

	evicted int            // pairs that had to make room for others
	forgot  bool           // pairs were forgotten
	clean   bool           // none since the lap began
	lapped  journal.ItemID // how far the lap has come; zero: the next one begins
	laps    uint64         // that began
	passed  pairSet        // pairs that were forgotten behind the lap
	lapAt   time.Time      // when it goes on
}

// longWait is how long ago the first failure of a pair's message is when the
// pair counts as one that waits.
const longWait = time.Second

func (f *flow) waitsLong(c *core) bool { return !f.since.IsZero() && c.now.Sub(f.since) >= longWait }

// flowHeap is flows by when they are due.
type flowHeap []*flow

func (h flowHeap) Len() int           { return len(h) }
func (h flowHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h flowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *flowHeap) Push(x any)        { *h = append(*h, x.(*flow)) }
func (h *flowHeap) Pop() any {
	old := *h
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return f
}

// isLong notes whether a pair has waited for long.
func (w *waiting) isLong(f *flow, long bool) {
	switch {
	case long && !f.long:
		w.long++
	case !long && f.long:
		w.long--
	}
	f.long = long
}

// parkEmpty parks a flow that holds nothing until it is due.
func (c *core) parkEmpty(s *shard, f *flow) {
	if f.lost || f.unsure && f.waitsLong(c) {
		s.waiting.forget(c, s, f)
		return
	}
	if f.until.Before(c.now) {
		f.until = c.now
	}
	f.parked, f.suspect = true, true
	heap.Push(&s.waiting.parked, f)
	c.noteWait(s, f)
}

// park has the messages of a pair leave the memory until its first is due
// again.
func (c *core) park(s *shard, f *flow) {
	f.noteFirst(&f.items[0].message)
	for _, it := range f.items {
		it.load.remove(&it.message)
	}
	s.again = s.again || s.unread || len(s.lagging) > 0
	f.items, f.broken, f.after = nil, false, before(f.first)
	if !c.opts.Types.Served(f.pair.to.Type) {
		c.ask(f)
	}
	c.parkEmpty(s, f)
}

// noteWait counts a pair that waits for long, and now and then logs one.
func (c *core) noteWait(s *shard, f *flow) {
	if !f.waitsLong(c) {
		return
	}
	s.waiting.isLong(f, true)
	if c.logAt.After(c.now) {
		return
	}
	c.logAt = c.now.Add(time.Minute)
	c.opts.Logger.Warn("messages wait, because their destination does not take them; hostd entity sends lists them", "shard_id", s.id,
		"source_type", f.pair.from.Type, "destination_type", f.pair.to.Type, "pairs", s.waiting.long, "error", f.reason)
}

// mayProbe reports room for another probe.
func (c *core) mayProbe(s *shard) bool {
	return len(s.waiting.parked) > 0 && s.waiting.probes.isBelow(&c.opts, 1, 2) && c.probing < max(1, c.opts.InFlight/2) && c.flight < c.opts.InFlight
}

// probe tries pairs that are due again.
func (c *core) probe(s *shard) {
	for c.mayProbe(s) && !s.waiting.parked[0].until.After(c.now) {
		f := heap.Pop(&s.waiting.parked).(*flow)
		f.parked = false
		if !c.opts.Types.Served(f.pair.to.Type) {
			if c.mayGiveUp(s, f, f.first) {
				c.giveUp(s, f, f.first, f.front)
				f.after, f.suspect, f.wait = f.first, false, 0
				c.advance(s, f)
			} else {
				c.ask(f)
				c.parkEmpty(s, f)
			}
			continue
		}
		m, err := c.opts.Outboxes.Message(s.id, f.first)
		switch {
		case err != nil:
			f.reason = err
			c.retryLater(f)
			c.parkEmpty(s, f)
			continue
		case m == nil: // an earlier attempt arrived after all
			f.after = f.first
		default:
			c.takeMessage(s, f, m, &s.waiting.probes)
		}
		c.advance(s, f)
	}
}

// ask finds out whether the type of a pair's destination exists.
func (c *core) ask(f *flow) {
	f.reason = request.ErrNotServed
	if f.coveredTo.Less(f.first) {
		f.coveredTo, f.coveredAt = f.last, c.now
	}
	if c.asking == nil {
		c.asking = &asked{name: f.pair.to.Type, at: c.now}
		c.pump.confirm(c.asking)
	}
	f.since = sooner(f.since, c.now)
	c.retryLater(f)
}

// maxUnknown bounds the types that are known not to exist; who needs another
// asks again.
const maxUnknown = 1024

// answered takes whether a type exists.
func (c *core) answered(a *asked) {
	c.asking = nil
	if len(c.unknown) >= maxUnknown {
		clear(c.unknown)
	}
	if delete(c.unknown, a.name); a.unknown {
		c.unknown[a.name] = a.at
	}
}

// mayGiveUp reports that a message goes to a type that does not exist: who
// asked did so after it was sent, and it is the first of its pair.
func (c *core) mayGiveUp(s *shard, f *flow, id journal.ItemID) bool {
	asked, unknown := c.unknown[f.pair.to.Type]
	return unknown && !f.unsure && !asked.Before(f.coveredAt) && !f.coveredTo.Less(id) && len(s.gaveUp.waiting) < 4*maxAcks
}

// giveUp ends the first message of a pair.
func (c *core) giveUp(s *shard, f *flow, id journal.ItemID, number uint64) {
	c.counts.givenUp.Add(1)
	s.gaveUp.waiting = append(s.gaveUp.waiting, request.Arrived{ID: id, Source: f.pair.from})
	f.gap.GiveUp(number)
}

// makeRoom has the shard know one more pair. It reports false if it cannot: all
// that it knows have messages on their way or, unless it must, have faults that
// are being counted.
func (w *waiting) makeRoom(c *core, s *shard, must bool) bool {
	if len(s.flows) < c.opts.Pairs {
		return true
	}
	// Leaves of the heap, each in its turn: few of them are due soon.
	at := -1
	for n, looks := len(w.parked), 0; n > 0 && looks < 8; looks++ {
		w.evicted++
		if leaf := n - 1 - w.evicted%(n-n/2); w.parked[leaf].faults == 0 || must && looks == 7 {
			at = leaf
			break
		}
	}
	if at < 0 {
		return false
	}
	w.forget(c, s, heap.Remove(&w.parked, at).(*flow))
	return true
}

// forget leaves a pair that waits to the next lap.
func (w *waiting) forget(c *core, s *shard, f *flow) {
	s.remove(f)
	if f.unsure || !w.lapped.Less(f.first) {
		w.passed.add(w.laps, f.pair)
	}
	if !w.forgot {
		w.lapAt = c.now.Add(c.opts.MaxWait)
	}
	w.forgot, w.clean = true, false
}

// pairSet is a set of pairs in 128 KiB, which are there once a pair is. It may
// report a pair that was not added, but not in every lap.
type pairSet struct{ bits []uint64 }

const pairSetBits = 1 << 20

// bit is the place of a pair in a lap.
func (p *pairSet) bit(lap uint64, of pair) uint64 {
	h := xxhash.NewWithSeed(lap)
	for _, text := range [...]string{of.from.Type, of.from.ID, of.to.Type, of.to.ID} {
		_, _ = h.WriteString(text)
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64() % pairSetBits
}

func (p *pairSet) add(lap uint64, of pair) {
	if p.bits == nil {
		p.bits = make([]uint64, pairSetBits/64)
	}
	b := p.bit(lap, of)
	p.bits[b/64] |= 1 << (b % 64)
}

func (p *pairSet) has(lap uint64, of pair) bool {
	if p.bits == nil {
		return false
	}
	b := p.bit(lap, of)
	return p.bits[b/64]&(1<<(b%64)) != 0
}

func (p *pairSet) clear() { p.bits = nil }

// lap looks for pairs that were forgotten, a slice of the outbox at a time.
func (c *core) lap(s *shard) {
	w := &s.waiting
	if !w.forgot || w.lapAt.After(c.now) {
		return
	}
	if w.lapped == (journal.ItemID{}) {
		w.clean = true
		w.laps++
		w.passed.clear()
	}
	rows, found, ended := 0, 0, true
	err := c.readOutbox(s, w.lapped, func(m *journal.Message) error {
		if s.cursor.Less(m.ID) {
			return c.opts.Stop
		}
		known := s.flows[pair{m.Source, m.Destination}] != nil
		if rows == sliceRows || !known && (found >= max(1, c.opts.Pairs/4) || !w.makeRoom(c, s, false)) {
			ended = false
			return c.opts.Stop
		}
		rows++
		w.lapped = m.ID
		if known {
			return nil
		}
		found++
		f := s.begin(m, w.passed.has(w.laps, pair{m.Source, m.Destination}))
		f.last = s.cursor
		f.noteFirst(m)
		c.parkEmpty(s, f) // it is due at once
		return nil
	})
	if err == nil && ended {
		w.lapped, w.forgot = journal.ItemID{}, !w.clean
	}
	w.lapAt = c.now
	if rows < sliceRows || found > 0 {
		w.lapAt = c.now.Add(c.opts.MaxWait) // they are probed before others take their place
	}
}
