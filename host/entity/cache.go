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
	count                        int
	often                        sketch
}

// segment is the list that a node is in.
type segment uint8

const (
	outside segment = iota
	inWindow
	inProbation
	inProtected
)

// node is an entity's place in the cache.
type node struct {
	prev, next *node
	seg        segment
	key        uint32 // hash of the entity's name
	entity     *entity
}

// list is a ring of nodes, least recently used first.
type list struct {
	root node
	len  int
}

func (l *list) front() *node {
	if l.len == 0 {
		return nil
	}
	return l.root.next
}

func (l *list) back() *node {
	if l.len == 0 {
		return nil
	}
	return l.root.prev
}

func (l *list) push(n *node) {
	if l.len == 0 {
		l.root.next, l.root.prev = &l.root, &l.root
	}
	n.prev, n.next = l.root.prev, &l.root
	n.prev.next, l.root.prev = n, n
	l.len++
}

func (l *list) take(n *node) {
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
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

func (c *cache) move(n *node, to segment) {
	if n.seg != outside {
		c.list(n.seg).take(n)
	}
	if n.seg = to; to != outside {
		c.list(to).push(n)
	}
}

// add takes a node in that is outside.
func (c *cache) add(n *node) {
	c.count++
	c.often.fit(c.count)
	c.often.increment(n.key)
	c.move(n, inWindow)
	for c.window.len > 1+c.count/100 {
		c.move(c.window.front(), inProbation)
	}
}

// remove takes a node out, if it is in.
func (c *cache) remove(n *node) {
	if n.seg != outside {
		c.count--
		c.move(n, outside)
	}
}

// touch tells that a node was asked for.
func (c *cache) touch(n *node) {
	c.often.increment(n.key)
	switch n.seg {
	case inWindow, inProtected:
		c.move(n, n.seg)
	case inProbation:
		c.move(n, inProtected)
		if c.protected.len > (c.count-c.window.len)*4/5 {
			c.move(c.protected.front(), inProbation)
		}
	}
}

// victim returns the node that should leave; nil when there is none. It stays
// in until it is removed or touched.
func (c *cache) victim() *node {
	candidate, oldest := c.probation.back(), c.probation.front()
	switch {
	case candidate == nil && c.window.len > 0:
		return c.window.front()
	case candidate == nil:
		return c.protected.front()
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
