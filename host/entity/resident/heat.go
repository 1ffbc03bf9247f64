package resident

import (
	"cmp"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Heat finds an executor's busiest entities with the space-saving sketch
// (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
// Elements in Data Streams", 2005): a fixed number of counters, of which the
// lowest is reassigned to an entity that has no counter. Heat counts a random
// sample of one command in hotOneIn, so that counting costs next to nothing,
// and never allocates.

const (
	// hotCounters is the number of entities that a window counts. Every entity
	// with more than 1/hotCounters of the commands is among them.
	hotCounters = 128
	// hotSlots is the size of the index, a power of two.
	hotSlots = 4 * hotCounters
	// hotOneIn is the number of commands of which one is counted.
	hotOneIn = 8
	// hotWindow is the length of a window. A report covers the current window
	// and the previous one.
	hotWindow = 10 * time.Second
)

// HotEntity is a frequently used entity.
type HotEntity struct {
	Entity   sharding.EntityID
	Shard    sharding.ShardID
	Commands uint64 // estimated number of commands in the span of the report
	Fuel     uint64 // estimated fuel of these commands
	Over     uint64 // the most by which Commands may be too high
}

// HotReport is the load of an executor's entities in a span of time.
type HotReport struct {
	Span     time.Duration
	Commands uint64 // estimated number of commands of all entities
	Fuel     uint64
	Entities []HotEntity // busiest first
}

// Heat counts an executor's commands by entity.
type Heat struct {
	random uint32
	began  int64 // start of the window, unix nanoseconds; 0 before the first
	// past is the length of the previous window.
	past   time.Duration
	now    *hotSketch
	before *hotSketch
}

// Add counts a command that was passed to a guest. key is the KeyOf of the
// entity.
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

// turn begins a new window if the current one is over.
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

// Report returns the counts, with at most limit entities.
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

// hotSketch is a heap of counters, the lowest first, with an index by entity.
type hotSketch struct {
	len      int
	counters [hotCounters]hotCounter
	index    [hotSlots]uint8 // position in counters plus one; 0 is free
	commands uint64
	fuel     uint64
}

// hotCounter counts an entity's commands since the counter was assigned to it.
type hotCounter struct {
	key      uint32
	slot     int // slot in the index
	id       sharding.EntityID
	shard    sharding.ShardID
	commands uint64
	over     uint64 // count inherited from the counter's previous entity
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

// find returns the slot of an entity, or the free slot for it.
func (s *hotSketch) find(key uint32, id sharding.EntityID) int {
	for slot := int(key % hotSlots); ; slot = (slot + 1) % hotSlots {
		at := int(s.index[slot]) - 1
		if at < 0 || s.counters[at].key == key && s.counters[at].id == id {
			return slot
		}
	}
}

// forget removes a counter from the index and closes the gap.
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
