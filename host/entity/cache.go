package entity

// cache decides which of a lane's resident entities leaves when memory is
// short: W-TinyLFU (Einziger, Friedman, Manes, "TinyLFU: A Highly Efficient
// Cache Admission Policy", 2017). New ones pass through a small window; who
// leaves the window stays only if it was asked for more often than the one
// that would leave in its place. It has no size of its own: the caller asks
// for victims.
//
//	add --> window --(over 1 %)--> probation <--touch / over 80 %--> protected
//	                                   |
//	                                victim
type cache struct {
	window, probation, protected list
	count                        int // in the lists
	apart                        int // folded: they count, and are in no list
	often                        sketch
}

// segment is the list that an entity is in.
type segment uint8

const (
	outside segment = iota
	inWindow
	inProbation
	inProtected
)

// links are an entity's neighbours in a list.
type links struct{ prev, next *entity }

// list is entities in order, least recently used first.
type list struct {
	first, last *entity
	len         int
}

func (l *list) push(e *entity) {
	if e.place = (links{prev: l.last}); l.last != nil {
		l.last.place.next = e
	} else {
		l.first = e
	}
	l.last = e
	l.len++
}

func (l *list) take(e *entity) {
	if e.place.prev != nil {
		e.place.prev.place.next = e.place.next
	} else {
		l.first = e.place.next
	}
	if e.place.next != nil {
		e.place.next.place.prev = e.place.prev
	} else {
		l.last = e.place.prev
	}
	e.place = links{}
	l.len--
}

func (c *cache) list(s segment) *list {
	switch s {
	case inWindow:
		return &c.window
	case inProbation:
		return &c.probation
	default:
		return &c.protected
	}
}

func (c *cache) move(e *entity, to segment) {
	if e.seg != outside {
		c.list(e.seg).take(e)
	}
	if e.seg = to; to != outside {
		c.list(to).push(e)
	}
}

// add takes an entity in that is outside.
func (c *cache) add(e *entity) {
	c.count++
	c.often.fit(c.count + c.apart)
	c.often.increment(e.key)
	c.move(e, inWindow)
	for c.window.len > 1+c.count/100 {
		c.move(c.window.first, inProbation)
	}
}

// remove takes an entity out, if it is in.
func (c *cache) remove(e *entity) {
	if e.seg == outside {
		return
	}
	c.move(e, outside)
	if c.count--; c.count+c.apart == 0 {
		c.often = sketch{} // nobody is left to compare
	}
}

// setApart takes an entity out of the lists that stays in memory.
func (c *cache) setApart(e *entity) {
	c.apart++
	c.remove(e)
}

// putBack takes an entity in again that was set apart.
func (c *cache) putBack(e *entity) {
	c.apart--
	c.count++
	c.move(e, inProbation)
}

// dropApart forgets an entity that was set apart.
func (c *cache) dropApart() {
	if c.apart--; c.count+c.apart == 0 {
		c.often = sketch{}
	}
}

// touch tells that an entity was asked for.
func (c *cache) touch(e *entity) {
	c.often.increment(e.key)
	switch e.seg {
	case inWindow, inProtected:
		c.move(e, e.seg)
	case inProbation:
		c.move(e, inProtected)
		if c.protected.len > (c.count-c.window.len)*4/5 {
			c.move(c.protected.first, inProbation)
		}
	}
}

// victim returns the entity that should leave; nil when there is none. It stays
// in until it is removed or touched.
func (c *cache) victim() *entity {
	candidate, oldest := c.probation.last, c.probation.first
	switch {
	case candidate == nil && c.window.len > 0:
		return c.window.first
	case candidate == nil:
		return c.protected.first
	case c.often.estimate(candidate.key) > c.often.estimate(oldest.key):
		return oldest
	}
	return candidate
}

// sketch estimates how often a key was seen of late: a count-min sketch of
// four-bit counters, halved after ten times as many increments as it has
// words.
type sketch struct {
	words []uint64 // 16 counters each; a power of two
	added int
}

// fit makes room for so many keys. A larger sketch begins from nothing.
func (s *sketch) fit(keys int) {
	if keys <= len(s.words) {
		return
	}
	n := 1024
	for n < keys {
		n *= 2
	}
	s.words, s.added = make([]uint64, n), 0
}

// slot is the i-th counter of a key: a word and a shift.
func (s *sketch) slot(key uint32, i uint) (word int, shift uint) {
	h := (uint64(key) + uint64(i)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	h ^= h >> 32
	return int(h & uint64(len(s.words)-1)), uint(key&3)<<4 + i<<2
}

func (s *sketch) increment(key uint32) {
	grown := false
	for i := range uint(4) {
		w, shift := s.slot(key, i)
		if s.words[w]>>shift&15 < 15 {
			s.words[w] += 1 << shift
			grown = true
		}
	}
	if !grown {
		return
	}
	if s.added++; s.added >= 10*len(s.words) {
		for i := range s.words {
			s.words[i] = s.words[i] >> 1 & 0x7777777777777777
		}
		s.added /= 2
	}
}

func (s *sketch) estimate(key uint32) uint64 {
	least := uint64(15)
	for i := range uint(4) {
		w, shift := s.slot(key, i)
		least = min(least, s.words[w]>>shift&15)
	}
	return least
}
