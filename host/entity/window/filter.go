package window

import "github.com/hostd/hostd/journal"

// Filter reports either that an entity has not seen a command id, or that it
// may have seen it. It is a Bloom filter whose size is a power of two, so that
// it can grow without the ids in it. A snapshot carries the filter instead of
// the window, and the window is read from the records only for an id that the
// filter may contain.
type Filter struct {
	bits []byte
	ids  int // number of added ids
}

// OpenFilter returns a filter with the given bytes and number of ids. It takes
// ownership of bits.
func OpenFilter(bits []byte, ids int) *Filter { return &Filter{bits: bits, ids: ids} }

// Bits returns the filter's bytes, which are valid until the next Add, and the
// number of added ids.
func (f *Filter) Bits() (bits []byte, ids int) { return f.bits, f.ids }

const (
	// filterBytes is the initial size of a filter.
	filterBytes = 256
	// filterBits is the minimum number of bits per id. It gives a false
	// positive rate of 1 in 40, or of 1 in 10 once the filter has grown.
	filterBits = 8
)

// newFilter returns an empty filter for the given number of ids.
func newFilter(ids int) *Filter {
	n := filterBytes
	for n*8 < ids*filterBits {
		n *= 2
	}
	return &Filter{bits: make([]byte, n)}
}

func (f *Filter) full() bool { return f.ids*filterBits >= len(f.bits)*8 }

// Add adds an id. A full filter must grow first.
func (f *Filter) Add(id journal.CommandID) { f.set(spread(id)) }

// set adds the id for which spread returned h and step.
func (f *Filter) set(h, step uint64) {
	f.ids++
	mask := uint64(len(f.bits)*8 - 1)
	for range 4 {
		f.bits[h&mask>>3] |= 1 << (h & 7)
		h += step
	}
}

// grow doubles the filter. In the larger filter each bit of an id is at its old
// position or len*8 beyond it, so copying the old bits into both halves keeps
// every id, at the price of more false positives.
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

// spread returns the first bit of an id and the distance to the next ones, both
// modulo the size of the filter (double hashing).
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

// Beyond knows the command ids that may be older than the window.
type Beyond struct {
	Filter  *Filter          // has the ids in the window and older ids; nil while there are few ids
	Partial bool             // the filter has ids that are older than the window
	Older   journal.Sequence // if Partial, the older ids are in the records from this sequence on
}

// MayHold reports whether an id, which is not in the window, may be older than
// the window.
func (b *Beyond) MayHold(id journal.CommandID) bool { return b.Partial && b.Filter.Has(id) }

// Follow maintains the filter after the window has taken a command. A window of
// more than above commands gets a filter. final reports that every command
// older than the window may be forgotten for good. Follow returns the filter to
// which the caller must add the command's id, or nil if there is none to add.
func (b *Beyond) Follow(w *Window, above int, final bool) *Filter {
	if final {
		b.Partial = false // the window is complete without the older ids
	}
	count := w.Count()
	switch {
	case b.Filter == nil && count <= above:
		return nil
	case b.Filter == nil || !b.Partial && b.Filter.full():
		b.Filter = newFilter(count + 1)
		w.each(func(id []byte) { b.Filter.set(spread(id)) })
		return nil // the window has the id
	case b.Filter.full():
		b.Filter.grow()
	}
	return b.Filter
}
