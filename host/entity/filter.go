package entity

import "github.com/hostd/hostd/journal"

// filter says of a command id that an entity has not seen it, or that it may
// have: a Bloom filter whose size is a power of two, so that it can grow
// without the ids that are in it. A snapshot carries it in place of the window,
// which is then read only for an id that may be in it.
type filter struct {
	bits []byte
	ids  int // that were added
}

const (
	// filterBytes is what a filter begins with.
	filterBytes = 256
	// filterBits is for each id, at least: of the ids that are not in a filter
	// 1 in 40 may be, or 1 in 10 once it has grown.
	filterBits = 8
)

// newFilter is an empty filter for so many ids.
func newFilter(ids int) *filter {
	n := filterBytes
	for n*8 < ids*filterBits {
		n *= 2
	}
	return &filter{bits: make([]byte, n)}
}

func (f *filter) full() bool { return f.ids*filterBits >= len(f.bits)*8 }

func (f *filter) add(id journal.CommandID) {
	f.ids++
	f.probe(id, func(b *byte, mask byte) bool { *b |= mask; return true })
}

// grow doubles the filter: an id is then where it was, or as much further on,
// so both places are taken.
func (f *filter) grow() {
	bits := make([]byte, 0, 2*len(f.bits))
	f.bits = append(append(bits, f.bits...), f.bits...)
}

// has reports whether the id may have been added.
func (f *filter) has(id journal.CommandID) bool {
	return f.probe(id, func(b *byte, mask byte) bool { return *b&mask != 0 })
}

// probe calls fn for the id's four bits, while it returns true.
func (f *filter) probe(id journal.CommandID, fn func(b *byte, mask byte) bool) bool {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := 0; i < len(id); i++ {
		h = (h ^ uint64(id[i])) * prime
	}
	h ^= h >> 32
	step := h>>17 | 1
	for range 4 {
		at := h & uint64(len(f.bits)*8-1)
		if !fn(&f.bits[at>>3], 1<<(at&7)) {
			return false
		}
		h += step
	}
	return true
}

// note keeps the entity's filter in step with its window, which has just taken
// the id.
func (c *core) note(e *entity, id journal.CommandID) {
	if e.seen.first > 0 {
		e.partial = false // what came since fills the window
	}
	switch {
	case e.filter == nil && e.seen.count <= c.opts.FilterAbove:
	case e.filter == nil || !e.partial && e.filter.full():
		e.filter = newFilter(e.seen.count + 1)
		for i := range e.seen.count {
			e.filter.add(e.seen.at(i).id)
		}
	default:
		if e.filter.full() {
			e.filter.grow()
		}
		e.filter.add(id)
	}
}
