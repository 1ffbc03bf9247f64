package resident

import (
	"cmp"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
)

// An executor knows which of its entities are asked for most by the space-saving
// sketch (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and
// Top-k Elements in Data Streams", 2005): a fixed number of counters, of which
// the lowest goes to whoever has none. One command in hotOneIn is counted, at
// random, so that the count costs next to nothing; it allocates nothing.

const (
	// hotCounters is how many entities a window counts. Whoever has more than
	// one in so many of the commands is among them.
	hotCounters = 128
	// hotSlots is the size of the index, a power of two.
	hotSlots = 4 * hotCounters
	// hotOneIn is how many commands one that is counted stands for.
	hotOneIn = 8
	// hotWindow is how long is counted before it begins anew; what is told is of
	// the window and of the one before.
	hotWindow = 10 * time.Second
)

// HotEntity is one that is asked for often.
type HotEntity struct {
	Entity   sharding.EntityID
	Shard    sharding.ShardID
	Commands uint64 // in the span, about
	Fuel     uint64 // that they cost, about
	Over     uint64 // by how much Commands may be too high
}

// HotReport is what an executor's entities were asked for in a span of time.
type HotReport struct {
	Span     time.Duration
	Commands uint64 // of all entities, about
	Fuel     uint64
	Entities []HotEntity // the hottest first
}

// Heat counts an executor's commands by entity.
type Heat struct {
	random uint32
	began  int64 // of the window, unix nanoseconds; 0 before the first
	past   time.Duration
	now    *hotSketch
	before *hotSketch
}

// Add counts a command that went to a guest; key is that of the entity's name.
func (h *Heat) Add(now int64, key uint32, id sharding.EntityID, shard sharding.ShardID, fuel uint64) {
	if h.random == 0 {
		h.random, h.now, h.before = 2463534242, new(hotSketch), new(hotSketch)
	}
	h.random ^= h.random << 13
	h.random ^= h.random >> 17
	h.random ^= h.random << 5
	if h.random%hotOneIn != 0 {
		return
	}
	h.turn(now)
	h.now.add(key, id, shard, fuel)
}

// turn begins a window when the one there is has lasted long enough.
func (h *Heat) turn(now int64) {
	lasted := time.Duration(now - h.began)
	switch {
	case h.began == 0 || lasted >= 2*hotWindow || lasted < 0:
		h.now.reset()
		h.before.reset()
		h.began, h.past = now, 0
	case lasted >= hotWindow:
		h.now, h.before = h.before, h.now
		h.now.reset()
		h.began, h.past = now, lasted
	}
}

// Report is what was counted, at most limit entities.
func (h *Heat) Report(now int64, limit int) HotReport {
	if h.now == nil {
		return HotReport{}
	}
	h.turn(now)
	r := HotReport{Span: time.Duration(now-h.began) + h.past}
	sums := make(map[sharding.EntityID]HotEntity, 2*hotCounters)
	for _, s := range [...]*hotSketch{h.now, h.before} {
		r.Commands += hotOneIn * s.commands
		r.Fuel += hotOneIn * s.fuel
		for i := range s.counters[:s.len] {
			c := &s.counters[i]
			sum := sums[c.id]
			sum.Entity, sum.Shard = c.id, c.shard
			sum.Commands += hotOneIn * c.commands
			sum.Fuel += hotOneIn * c.fuel
			sum.Over += hotOneIn * c.over
			sums[c.id] = sum
		}
	}
	for _, sum := range sums {
		r.Entities = append(r.Entities, sum)
	}
	slices.SortFunc(r.Entities, func(a, b HotEntity) int {
		return cmp.Or(cmp.Compare(b.Commands, a.Commands), cmp.Compare(a.Entity.String(), b.Entity.String()))
	})
	r.Entities = r.Entities[:min(limit, len(r.Entities))]
	return r
}

// hotSketch is a heap of counters, the lowest first, and an index of them.
type hotSketch struct {
	len      int
	counters [hotCounters]hotCounter
	index    [hotSlots]uint8 // place in counters, plus one; 0 is free
	commands uint64
	fuel     uint64
}

// hotCounter counts what one entity was asked for, since it took the counter
// over.
type hotCounter struct {
	key      uint32
	slot     int // in the index
	id       sharding.EntityID
	shard    sharding.ShardID
	commands uint64
	over     uint64 // what was taken over from whoever had the counter before
	fuel     uint64
}

func (s *hotSketch) reset() {
	clear(s.counters[:s.len])
	s.index = [hotSlots]uint8{}
	s.len, s.commands, s.fuel = 0, 0, 0
}

func (s *hotSketch) add(key uint32, id sharding.EntityID, shard sharding.ShardID, fuel uint64) {
	s.commands++
	s.fuel += fuel
	slot := s.find(key, id)
	at := int(s.index[slot]) - 1
	switch {
	case at >= 0:
	case s.len < hotCounters:
		at = s.len
		s.len++
		s.counters[at] = hotCounter{key: key, slot: slot, id: id, shard: shard}
		s.index[slot] = uint8(at + 1)
		at = s.up(at)
	default:
		lowest := s.counters[0].commands
		s.forget(0)
		slot = s.find(key, id)
		s.counters[0] = hotCounter{key: key, slot: slot, id: id, shard: shard, commands: lowest, over: lowest}
		at = 0
		s.index[slot] = 1
	}
	c := &s.counters[at]
	c.commands++
	c.fuel += fuel
	s.down(at)
}

// find returns the slot of an entity, or the free one where it would be.
func (s *hotSketch) find(key uint32, id sharding.EntityID) int {
	for slot := int(key % hotSlots); ; slot = (slot + 1) % hotSlots {
		at := int(s.index[slot]) - 1
		if at < 0 || s.counters[at].key == key && s.counters[at].id == id {
			return slot
		}
	}
}

// forget takes a counter out of the index, and closes the gap.
func (s *hotSketch) forget(at int) {
	gap := s.counters[at].slot
	s.index[gap] = 0
	for slot := (gap + 1) % hotSlots; s.index[slot] != 0; slot = (slot + 1) % hotSlots {
		home := int(s.counters[s.index[slot]-1].key % hotSlots)
		if (slot-home+hotSlots)%hotSlots >= (slot-gap+hotSlots)%hotSlots {
			s.index[gap], s.index[slot] = s.index[slot], 0
			s.counters[s.index[gap]-1].slot = gap
			gap = slot
		}
	}
}

func (s *hotSketch) swap(a, b int) {
	s.counters[a], s.counters[b] = s.counters[b], s.counters[a]
	s.index[s.counters[a].slot], s.index[s.counters[b].slot] = uint8(a+1), uint8(b+1)
}

func (s *hotSketch) up(at int) int {
	for at > 0 && s.counters[at].commands < s.counters[(at-1)/2].commands {
		s.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
	return at
}

func (s *hotSketch) down(at int) {
	for {
		low := 2*at + 1
		if low >= s.len {
			return
		}
		if low+1 < s.len && s.counters[low+1].commands < s.counters[low].commands {
			low++
		}
		if s.counters[low].commands >= s.counters[at].commands {
			return
		}
		s.swap(at, low)
		at = low
	}
}
