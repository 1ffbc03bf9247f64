package resident

// Cache decides which of an executor's resident entities is evicted if memory
// is short. It implements W-TinyLFU (Einziger, Friedman, Manes, "TinyLFU: A
// Highly Efficient Cache Admission Policy", 2017). New entities pass through a
// small window. An entity that leaves the window stays only if it was used more
// often than the entity that would be evicted instead. The cache has no size of
// its own: the caller asks for victims.
//
//	add --> window --(over 1 %)--> probation <--touch / over 80 %--> protected
//	                                  |
//	                              victim
type Cache[E Member[E]] struct {
	window, probation, protected list[E]
	count                        int // number of entities in the lists
	hibernated                   int // hibernated entities, which count for the sketch but are in no list
	often                        sketch
}

// Segment is the list that an entity is in; the zero value is none.
type Segment uint8

const (
	outside Segment = iota
	inWindow
	inProbation
	inProtected
)

// Links are the neighbours of an entity in a list.
type Links[E any] struct{ prev, next E }

// Member is an entity that can be in a Cache: a pointer.
type Member[E any] interface {
	Named
	// Place returns the cache's data for the entity.
	Place() (*Links[E], *Segment)
}

// list is a list of entities, least recently used first.
type list[E Member[E]] struct {
	first, last E
	len         int
}

func linksOf[E Member[E]](e E) *Links[E] { l, _ := e.Place(); return l }

func (l *list[E]) push(e E) {
	var none E
	place := linksOf(e)
	if *place = (Links[E]{prev: l.last}); l.last != none {
		linksOf(l.last).next = e
	} else {
		l.first = e
	}
	l.last = e
	l.len++
}

func (l *list[E]) take(e E) {
	var none E
	place := linksOf(e)
	if place.prev != none {
		linksOf(place.prev).next = place.next
	} else {
		l.first = place.next
	}
	if place.next != none {
		linksOf(place.next).prev = place.prev
	} else {
		l.last = place.prev
	}
	*place = Links[E]{}
	l.len--
}

func (c *Cache[E]) list(s Segment) *list[E] {
	switch s {
	case inWindow:
		return &c.window
	case inProbation:
		return &c.probation
	default:
		return &c.protected
	}
}

func (c *Cache[E]) move(e E, to Segment) {
	_, seg := e.Place()
	if *seg != outside {
		c.list(*seg).take(e)
	}
	if *seg = to; to != outside {
		c.list(to).push(e)
	}
}

// Add adds an entity that is in no list.
func (c *Cache[E]) Add(e E) {
	c.count++
	c.often.reserve(c.count + c.hibernated)
	c.often.increment(e.Key())
	c.move(e, inWindow)
	for c.window.len > 1+c.count/100 {
		c.move(c.window.first, inProbation)
	}
}

// Remove removes an entity if it is in a list.
func (c *Cache[E]) Remove(e E) {
	if _, seg := e.Place(); *seg == outside {
		return
	}
	c.move(e, outside)
	if c.count--; c.count+c.hibernated == 0 {
		c.often = sketch{} // no entity is left to compare
	}
}

// SetHibernated removes a hibernated entity from the lists. It continues to count,
// because it is still in memory.
func (c *Cache[E]) SetHibernated(e E) {
	c.hibernated++
	c.Remove(e)
}

// PutBack returns a hibernated entity to the lists.
func (c *Cache[E]) PutBack(e E) {
	c.hibernated--
	c.count++
	c.move(e, inProbation)
}

// DropHibernated forgets one hibernated entity.
func (c *Cache[E]) DropHibernated() {
	if c.hibernated--; c.count+c.hibernated == 0 {
		c.often = sketch{}
	}
}

// Touch notes a request for an entity.
func (c *Cache[E]) Touch(e E) {
	c.often.increment(e.Key())
	switch _, seg := e.Place(); *seg {
	case inWindow, inProtected:
		c.move(e, *seg)
	case inProbation:
		c.move(e, inProtected)
		if c.protected.len > (c.count-c.window.len)*4/5 {
			c.move(c.protected.first, inProbation)
		}
	}
}

// Victim returns the entity to evict, or nil if there is none. The entity
// remains in its list until it is removed or touched.
func (c *Cache[E]) Victim() E {
	var none E
	candidate, oldest := c.probation.last, c.probation.first
	switch {
	case candidate == none && c.window.len > 0:
		return c.window.first
	case candidate == none:
		return c.protected.first
	case c.often.estimate(candidate.Key()) > c.often.estimate(oldest.Key()):
		return oldest
	}
	return candidate
}

func (c *Cache[E]) ForgetHibernated() { c.hibernated = 0 }

// Count is the number of entities in the lists, without hibernated entities.
func (c *Cache[E]) Count() int { return c.count }

// HibernatedCount is the number of hibernated entities.
func (c *Cache[E]) HibernatedCount() int { return c.hibernated }

// Estimate returns about how often the entity with this key was used recently.
func (c *Cache[E]) Estimate(key uint32) uint64 { return c.often.estimate(key) }

// sketch estimates how often a key was used recently. It is a count-min sketch
// of four-bit counters, which are all halved after ten increments per word.
type sketch struct {
	words []uint64 // each word has 16 counters; the length is a power of two
	added int
}

// reserve makes room for the given number of keys. A larger sketch starts empty.
func (s *sketch) reserve(keys int) {
	if keys <= len(s.words) {
		return
	}
	n := 1024
	for n < keys {
		n *= 2
	}
	s.words, s.added = make([]uint64, n), 0
}

// slot returns the i-th counter of a key as a word and a shift.
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
