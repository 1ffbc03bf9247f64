package rows

import "slices"

// set tracks the rows in the store by a seeded hash of their keys, with a tag
// of their contents. If the store does not find a row of the set, or returns
// different contents, the store is damaged. The set needs about 13 bytes per
// row.
//
// The rows are divided into parts by the low bits of their hash. As the set
// grows, the parts are split one at a time in turn (linear hashing), so growing
// never copies all rows.
type set struct {
	parts []part
	level uint // there were 1<<level parts at the start of this round of splits
	rows  int
}

// part is sorted by hash. Few rows share a hash.
type part struct {
	places []uint64
	tags   []uint32
}

const (
	// partRows is the average number of rows per part.
	partRows = 128
	// partRoom is added to the capacity of a full part.
	partRoom = 16
)

// maxKnown limits how many rows with the same hash are considered.
const maxKnown = 4

// knownRow holds the tags of the rows with the same hash.
type knownRow struct {
	n    int
	tags [maxKnown]uint32
}

// has reports whether one of the rows has the tag.
func (k *knownRow) has(tag uint32) bool { return slices.Contains(k.tags[:k.n], tag) }

func (s *set) part(place uint64) *part {
	i := place & (1<<s.level - 1)
	if i < uint64(len(s.parts))-1<<s.level {
		i = place & (1<<(s.level+1) - 1)
	}
	return &s.parts[i]
}

// find returns the tags of the rows with a hash.
func (s *set) find(place uint64) (k knownRow) {
	if s.rows == 0 {
		return k
	}
	p := s.part(place)
	for i, _ := slices.BinarySearch(p.places, place); i < len(p.places) && p.places[i] == place && k.n < maxKnown; i++ {
		k.tags[k.n] = p.tags[i]
		k.n++
	}
	return k
}

// add adds a row.
func (s *set) add(place uint64, tag uint32) {
	if s.parts == nil {
		s.parts = make([]part, 1)
	}
	if s.rows++; s.rows > len(s.parts)*partRows {
		s.split()
	}
	s.part(place).add(place, tag)
}

func (p *part) add(place uint64, tag uint32) {
	i, _ := slices.BinarySearch(p.places, place)
	if n := len(p.places); n == cap(p.places) {
		room := n + min(partRoom, n/4+2)
		p.places = append(make([]uint64, 0, room), p.places...)
		p.tags = append(make([]uint32, 0, room), p.tags...)
	}
	p.places = slices.Insert(p.places, i, place)
	p.tags = slices.Insert(p.tags, i, tag)
}

// change changes the tag of a row, and reports whether the row existed.
func (s *set) change(place uint64, from, to uint32) bool {
	p, i := s.index(place, from)
	if i < 0 {
		return false
	}
	p.tags[i] = to
	return true
}

// remove removes a row, and reports whether it existed.
func (s *set) remove(place uint64, tag uint32) bool {
	p, i := s.index(place, tag)
	if i < 0 {
		return false
	}
	p.places, p.tags = slices.Delete(p.places, i, i+1), slices.Delete(p.tags, i, i+1)
	s.rows--
	return true
}

func (s *set) index(place uint64, tag uint32) (*part, int) {
	if s.rows == 0 {
		return nil, -1
	}
	p := s.part(place)
	for i, _ := slices.BinarySearch(p.places, place); i < len(p.places) && p.places[i] == place; i++ {
		if p.tags[i] == tag {
			return p, i
		}
	}
	return nil, -1
}

// split moves about half of the rows of the next part to a new part.
func (s *set) split() {
	next := len(s.parts) - 1<<s.level
	old := s.parts[next]
	bit := uint64(1) << s.level
	upper := 0
	for _, place := range old.places {
		if place&bit != 0 {
			upper++
		}
	}
	var low, high part
	low.room(len(old.places) - upper)
	high.room(upper)
	for i, place := range old.places {
		p := &low
		if place&bit != 0 {
			p = &high
		}
		p.places, p.tags = append(p.places, place), append(p.tags, old.tags[i])
	}
	s.parts[next] = low
	if s.parts = append(s.parts, high); len(s.parts) == 2<<s.level {
		s.level++
	}
}

func (p *part) room(n int) {
	p.places, p.tags = make([]uint64, 0, n), make([]uint32, 0, n)
}
