package window

import "github.com/hostd/hostd/journal"

// Filter says of a command id that an entity has not seen it, or that it may
// have: a Bloom filter whose size is a power of two, so that it can grow
// without the ids that are in it. A snapshot carries it in place of the window,
// which is then read only for an id that may be in it.
type Filter struct {
	bits []byte
	ids  int // that were added
}

// OpenFilter is a filter of those bytes, which it takes over, with so many ids.
func OpenFilter(bits []byte, ids int) *Filter { return &Filter{bits: bits, ids: ids} }

// Bits are the filter's bytes, valid until an id is added, and how many ids
// have been.
func (f *Filter) Bits() (bits []byte, ids int) { return f.bits, f.ids }

const (
	// filterBytes is what a filter begins with.
	filterBytes = 256
	// filterBits is for each id, at least: of the ids that are not in a filter
	// 1 in 40 may be, or 1 in 10 once it has grown.
	filterBits = 8
)

// newFilter is an empty filter for so many ids.
func newFilter(ids int) *Filter {
	n := filterBytes
	for n*8 < ids*filterBits {
		n *= 2
	}
	return &Filter{bits: make([]byte, n)}
}

func (f *Filter) full() bool { return f.ids*filterBits >= len(f.bits)*8 }

// Add adds an id; a filter that is full has to grow first.
func (f *Filter) Add(id journal.CommandID) { f.set(spread(id)) }

// set adds the id that is spread so.
func (f *Filter) set(h, step uint64) {
	f.ids++
	mask := uint64(len(f.bits)*8 - 1)
	for range 4 {
		f.bits[h&mask>>3] |= 1 << (h & 7)
		h += step
	}
}

// grow doubles the filter: an id is then where it was, or as much further on,
// so both places are taken.
func (f *Filter) grow() {
	bits := make([]byte, 0, 2*len(f.bits))
	f.bits = append(append(bits, f.bits...), f.bits...)
}

// Has reports whether the id may have been added.
func (f *Filter) Has(id journal.CommandID) bool {
	h, step := spread(id)
	mask := uint64(len(f.bits)*8 - 1)
	for range 4 {
		if f.bits[h&mask>>3]&(1<<(h&7)) == 0 {
			return false
		}
		h += step
	}
	return true
}

// spread returns an id's first bit and the way to the next ones, modulo the
// size of a filter.
func spread[T bytestring](id T) (first, step uint64) {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	i := 0
	for ; i+8 <= len(id); i += 8 {
		b := id[i : i+8]
		h ^= uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		h *= prime
		h ^= h >> 29
	}
	for ; i < len(id); i++ {
		h = (h ^ uint64(id[i])) * prime
	}
	h ^= h >> 32
	return h, h>>17 | 1
}

// Beyond is what is known of command ids that may be older than those in a
// window.
type Beyond struct {
	Filter  *Filter          // of the ids in the window and of older ones; nil while there are few
	Partial bool             // ids older than the window are in the filter, and not in the window
	Older   journal.Sequence // with Partial, the older ids are in the records from here on
}

// MayHold reports that an id which is not in the window may be older than it.
func (b *Beyond) MayHold(id journal.CommandID) bool { return b.Partial && b.Filter.Has(id) }

// Follow looks after the filter when the window has taken a command: one of
// more than above commands has a filter. final says that after it all that is
// older than the window may be forgotten for good. It returns the filter that
// has to take the command's id as well; nil for none.
func (b *Beyond) Follow(w *Window, above int, final bool) *Filter {
	if final {
		b.Partial = false // what came since fills the window
	}
	count := w.Count()
	switch {
	case b.Filter == nil && count <= above:
		return nil
	case b.Filter == nil || !b.Partial && b.Filter.full():
		b.Filter = newFilter(count + 1)
		w.each(func(id []byte) { b.Filter.set(spread(id)) })
		return nil // it is in the window
	case b.Filter.full():
		b.Filter.grow()
	}
	return b.Filter
}
