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

func (f *filter) add(id journal.CommandID) { f.set(spread(id)) }

// set adds the id that is spread so.
func (f *filter) set(h, step uint64) {
	f.ids++
	mask := uint64(len(f.bits)*8 - 1)
	for range 4 {
		f.bits[h&mask>>3] |= 1 << (h & 7)
		h += step
	}
}

// grow doubles the filter: an id is then where it was, or as much further on,
// so both places are taken.
func (f *filter) grow() {
	bits := make([]byte, 0, 2*len(f.bits))
	f.bits = append(append(bits, f.bits...), f.bits...)
}

// has reports whether the id may have been added.
func (f *filter) has(id journal.CommandID) bool {
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

// note puts a command into the entity's window, and keeps its filter in step.
func (c *core) note(e *entity, r remembered) {
	final := e.seen.add(&c.opts.Window, r)
	if f := c.filtered(e, final); f != nil {
		f.add(r.id)
	}
}

// noteAll does so with the commands of a chunk of history.
func (c *core) noteAll(e *entity, seen recollection) {
	var text [64]byte
	reserved := false
	for left, rest := seen.count, seen.packed; left > 0; left-- {
		if m := e.seen.many; m != nil && !reserved {
			m.reserve(min(left, c.opts.Window.Commands), len(rest))
			reserved = true
		}
		var p packed[[]byte]
		p, rest = next(rest)
		n, r := p.called(), lent(p)
		final := e.seen.put(&c.opts.Window, &n, &r)
		if f := c.filtered(e, final); f != nil {
			f.set(spread(n.appendText(text[:0])))
		}
	}
}

// filtered looks after an entity's filter when its window has taken a command.
// After it all that is older than the window may be forgotten for good. It
// returns the filter that has to take the command's id as well; nil for none.
func (c *core) filtered(e *entity, final bool) *filter {
	if e.rest == nil && e.seen.many == nil && fewCommands <= c.opts.FilterAbove {
		return nil
	}
	count, x := e.seen.count(), e.rest
	if x == nil && count <= c.opts.FilterAbove {
		return nil
	}
	if x = e.more(); final {
		x.partial = false // what came since fills the window
	}
	switch {
	case x.filter == nil && count <= c.opts.FilterAbove:
		return nil
	case x.filter == nil || !x.partial && x.filter.full():
		x.filter = newFilter(count + 1)
		e.seen.each(func(id []byte) { x.filter.set(spread(id)) })
		return nil // it is in the window
	case x.filter.full():
		x.filter.grow()
	}
	return x.filter
}
