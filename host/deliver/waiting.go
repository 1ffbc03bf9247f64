package deliver

import (
	"container/heap"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// waiting is the channels of a shard whose first message failed (waiting
// channels). They hold no message in memory, so that they never take memory
// from channels whose destinations are available. When a waiting channel is
// due, only its first message is read again and sent as a probe. Probes have a
// separate memory budget.
//
// A shard tracks a bounded number of channels. To make room for a new
// channel, it forgets a waiting channel, which loses nothing because the
// outbox still has the messages. A lap scans the outbox from the oldest
// message to find forgotten channels again. It stops after it has found a
// quarter of the table, so that the channels it found get a probe before
// others replace them.
//
// A flow that starts while channels are forgotten may not have the first
// message of its channel (it is unsure). The destination does not accept a
// message out of turn. So an unsure flow is forgotten too when the
// destination asks for an earlier message, or when the flow has waited for
// long. An unsure flow never gives a message up, because the messages of a
// channel must be given up in order. A lap sees the messages in order, so the
// message with which it finds a channel is the channel's first one, unless
// the channel was tracked when the lap passed its first message and was
// forgotten afterwards. The set passed contains such channels. The lap skips
// them, because the destination would not accept their later messages, and
// each would cost a place in the table and a pause. The set missed contains
// the channels of unsure flows, of which the lap may or may not have passed
// the first message.
type waiting struct {
	deferred flowHeap
	probes   load
	long     int // channels that have waited for long

	evicted int            // number of tries to evict a channel
	forgot  bool           // channels have been forgotten
	clean   bool           // no channel was forgotten since the lap began
	lapped  journal.ItemID // position of the lap; zero if the next lap has not begun
	laps    uint64         // laps begun
	passed  channelSet     // channels forgotten after the lap passed their first message
	missed  channelSet     // channels of forgotten unsure flows
	lapAt   time.Time      // when the lap continues
}

// longWait is how long a channel's first message must have been failing before
// the channel counts as waiting for long.
const longWait = time.Second

func (f *flow) waitsLong(c *core) bool { return !f.since.IsZero() && c.now.Sub(f.since) >= longWait }

// flowHeap orders flows by the time when they are due.
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

// isLong sets whether a channel has waited for long.
func (w *waiting) isLong(f *flow, long bool) {
	switch {
	case long && !f.long:
		w.long++
	case !long && f.long:
		w.long--
	}
	f.long = long
}

// deferEmptyChannel defers a flow that holds no messages until it is due.
func (c *core) deferEmptyChannel(s *shard, f *flow) {
	if f.lost || f.unsure && f.waitsLong(c) {
		s.waiting.forget(c, s, f)
		return
	}
	if f.until.Before(c.now) {
		f.until = c.now
	}
	f.deferred, f.suspect = true, true
	heap.Push(&s.waiting.deferred, f)
	c.noteWait(s, f)
}

// deferChannel removes the messages of a channel from memory until its first message is
// due again.
func (c *core) deferChannel(s *shard, f *flow) {
	f.noteFirst(&f.items[0].message)
	for _, it := range f.items {
		it.load.remove(&it.message)
	}
	s.again = s.again || s.unread || len(s.lagging) > 0
	f.items, f.broken, f.after = nil, false, before(f.first)
	if !c.opts.Types.IsServed(f.channel.to.Type) {
		c.ask(f)
	}
	c.deferEmptyChannel(s, f)
}

// noteWait counts a channel that has waited for long, and logs one such
// channel per minute.
func (c *core) noteWait(s *shard, f *flow) {
	if !f.waitsLong(c) {
		return
	}
	s.waiting.isLong(f, true)
	if c.logAt.After(c.now) {
		return
	}
	c.logAt = c.now.Add(time.Minute)
	c.opts.Logger.Warn("messages are waiting because their destination does not accept them; 'hostd entity messages' lists them", "shard_id", s.id,
		"source_type", f.channel.from.Type, "destination_type", f.channel.to.Type, "pairs", s.waiting.long, "error", f.reason)
}

// mayProbe reports whether there is room for another probe.
func (c *core) mayProbe(s *shard) bool {
	return len(s.waiting.deferred) > 0 && s.waiting.probes.isBelow(&c.opts, 1, 2) && c.probing < max(1, c.opts.InFlight/2) && c.flight < c.opts.InFlight
}

// probe retries channels that are due.
func (c *core) probe(s *shard) {
	for c.mayProbe(s) && !s.waiting.deferred[0].until.After(c.now) {
		f := heap.Pop(&s.waiting.deferred).(*flow)
		f.deferred = false
		if !c.opts.Types.IsServed(f.channel.to.Type) {
			if c.mayGiveUp(s, f, f.first) {
				c.giveUp(s, f, f.first, f.front)
				f.after, f.suspect, f.wait = f.first, false, 0
				c.advance(s, f)
			} else {
				c.ask(f)
				c.deferEmptyChannel(s, f)
			}
			continue
		}
		m, err := c.opts.Outboxes.Message(s.id, f.first)
		switch {
		case err != nil:
			f.reason = err
			c.retryLater(f)
			c.deferEmptyChannel(s, f)
			continue
		case m == nil: // an earlier attempt arrived
			f.after = f.first
		default:
			c.takeMessage(s, f, m, &s.waiting.probes)
		}
		c.advance(s, f)
	}
}

// ask starts to find out whether the type of a channel's destination exists.
func (c *core) ask(f *flow) {
	f.reason = request.ErrNotServed
	if f.coveredTo.Less(f.first) {
		f.coveredTo, f.coveredAt = f.last, c.now
	}
	if c.asking == nil {
		c.asking = &typeLookup{name: f.channel.to.Type, at: c.now}
		c.inputs.confirm(c.asking)
	}
	f.since = sooner(f.since, c.now)
	c.retryLater(f)
}

// maxUnknown bounds the cached types that do not exist. When it is exceeded,
// the cache is cleared and types are asked for again.
const maxUnknown = 1024

// finishLookup processes the result of a type lookup.
func (c *core) finishLookup(a *typeLookup) {
	c.asking = nil
	if len(c.unknown) >= maxUnknown {
		clear(c.unknown)
	}
	if delete(c.unknown, a.name); a.unknown {
		c.unknown[a.name] = a.at
	}
}

// mayGiveUp reports whether a message may be given up: its destination's type
// does not exist, the lookup began after the message was sent, and the
// message is the first of its channel.
func (c *core) mayGiveUp(s *shard, f *flow, id journal.ItemID) bool {
	asked, unknown := c.unknown[f.channel.to.Type]
	return unknown && !f.unsure && !asked.Before(f.coveredAt) && !f.coveredTo.Less(id) && len(s.gaveUp.waiting) < 4*maxAcks
}

// giveUp gives up the first message of a channel.
func (c *core) giveUp(s *shard, f *flow, id journal.ItemID, number uint64) {
	c.counts.givenUp.Add(1)
	s.gaveUp.waiting = append(s.gaveUp.waiting, request.Arrived{ID: id, Source: f.channel.from})
	f.gap.GiveUp(number)
}

// makeRoom makes room to track one more channel and reports whether it
// succeeded. It fails if all tracked channels have messages in flight or,
// unless must is set, are counting guest faults, because forgetting them would
// reset the counts.
func (w *waiting) makeRoom(c *core, s *shard, must bool) bool {
	if len(s.flows) < c.opts.Channels {
		return true
	}
	// Try the leaves of the heap in turn, because few of them are due soon.
	at := -1
	for n, looks := len(w.deferred), 0; n > 0 && looks < 8; looks++ {
		w.evicted++
		if leaf := n - 1 - w.evicted%(n-n/2); w.deferred[leaf].faults == 0 || must && looks == 7 {
			at = leaf
			break
		}
	}
	if at < 0 {
		return false
	}
	w.forget(c, s, heap.Remove(&w.deferred, at).(*flow))
	return true
}

// forget stops tracking a waiting channel. The next lap finds it again.
func (w *waiting) forget(c *core, s *shard, f *flow) {
	s.remove(c, f)
	switch {
	case f.unsure:
		w.missed.add(w.laps, f.channel)
	case !w.lapped.Less(f.first):
		w.passed.add(w.laps, f.channel)
	}
	if !w.forgot {
		w.lapAt = c.now.Add(c.opts.MaxWait)
	}
	w.forgot, w.clean = true, false
}

// channelSet is a Bloom filter of channels with three hash functions. It uses
// 128 KiB once a channel was added. It may report a channel that was not added,
// but the hash is seeded per lap, so no channel is reported wrongly in every lap.
type channelSet struct{ bits []uint64 }

const channelSetBits = 1 << 20

// hashes returns the bits of a channel in a lap.
func (p *channelSet) hashes(lap uint64, of channel) (bits [3]uint64) {
	h := xxhash.NewWithSeed(lap)
	for _, text := range [...]string{of.from.Type, of.from.ID, of.to.Type, of.to.ID} {
		_, _ = h.WriteString(text)
		_, _ = h.Write([]byte{0})
	}
	sum := h.Sum64()
	for i := range bits {
		bits[i] = sum % channelSetBits
		sum /= channelSetBits
	}
	return bits
}

func (p *channelSet) add(lap uint64, of channel) {
	if p.bits == nil {
		p.bits = make([]uint64, channelSetBits/64)
	}
	for _, b := range p.hashes(lap, of) {
		p.bits[b/64] |= 1 << (b % 64)
	}
}

func (p *channelSet) has(lap uint64, of channel) bool {
	if p.bits == nil {
		return false
	}
	for _, b := range p.hashes(lap, of) {
		if p.bits[b/64]&(1<<(b%64)) == 0 {
			return false
		}
	}
	return true
}

func (p *channelSet) clear() { p.bits = nil }

// isPast reports whether the flow begins after a message that is still in the
// outbox. That happens if an earlier leader delivered the message but did not
// remove it, so that the destination now accepts the next one. Once the flow
// has ended, a lap finds the message.
func (f *flow) isPast(id journal.ItemID) bool {
	return !f.after.Less(id) && !slices.ContainsFunc(f.items, func(it *item) bool { return it.message.ID == id })
}

// lap searches a slice of the outbox for forgotten channels.
func (c *core) lap(s *shard) {
	w := &s.waiting
	if !w.forgot || w.lapAt.After(c.now) {
		return
	}
	if w.lapped == (journal.ItemID{}) {
		w.clean = true
		w.laps++
		w.missed.clear()
		w.passed.clear()
	}
	rows, found, ended := 0, 0, true
	err := c.readOutbox(s, w.lapped, func(m *journal.Message) error {
		if s.cursor.Less(m.ID) {
			return c.opts.Stop
		}
		of := channel{m.Source, m.Destination}
		f := s.flows[of]
		known, passed := f != nil, w.passed.has(w.laps, of)
		if rows == sliceRows || !known && !passed && (found >= max(1, c.opts.Channels/4) || !w.makeRoom(c, s, false)) {
			ended = false
			return c.opts.Stop
		}
		rows++
		w.lapped = m.ID
		if known {
			if f.isPast(m.ID) {
				w.clean = false
			}
			return nil
		}
		if passed {
			return nil
		}
		found++
		f = s.begin(m, w.missed.has(w.laps, of))
		f.last = s.cursor
		f.noteFirst(m)
		c.deferEmptyChannel(s, f) // the channel is due at once
		return nil
	})
	over := err == nil && ended
	if over {
		w.lapped, w.forgot = journal.ItemID{}, !w.clean
	}
	w.lapAt = c.now
	if over || rows < sliceRows || found > 0 {
		w.lapAt = c.now.Add(c.opts.MaxWait) // so that the channels just found are probed before others replace them
	}
}
