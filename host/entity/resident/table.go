package resident

import "github.com/hostd/hostd/sharding"

// Table finds the hibernated entities of a shard by a hash of their names. It
// works like a Directory, and splits into parts like one.
type Table struct {
	slots []Slot // 0 means a free slot
	parts []Table
	len   int
}

// Len is the number of entities.
func (t *Table) Len() int { return t.len }

// Next returns the first entity at position at or later, and its position, or 0
// if there is none. Positions change when the table changes.
func (t *Table) Next(at int) (p Slot, place int) {
	if t.parts != nil {
		for i := at / partPlaces; i < len(t.parts); i, at = i+1, (i+1)*partPlaces {
			if p, in := t.parts[i].Next(at % partPlaces); p != 0 {
				return p, i*partPlaces + in
			}
		}
		return 0, 0
	}
	for ; at < len(t.slots); at++ {
		if t.slots[at] != 0 {
			return t.slots[at], at
		}
	}
	return 0, 0
}

// partPlaces exceeds the number of slots of a part.
const partPlaces = 1 << 40

// Find returns the slot of a hibernated entity, or 0 if it is not in the table.
func (s *Store[T]) Find(t *Table, id sharding.EntityID, key uint32) Slot {
	if t.len == 0 {
		return 0
	}
	if t.parts != nil {
		return s.Find(&t.parts[partOf(key)], id, key)
	}
	mask := len(t.slots) - 1
	for i := int(key) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		rec := s.at(t.slots[i])
		if rec.key() == key && string(rec.id()) == id.ID && s.pages.at(t.slots[i].page()).log.typ == id.Type {
			return t.slots[i]
		}
	}
	return 0
}

func (s *Store[T]) keep(t *Table, p Slot) {
	if t.parts == nil && 4*(t.len+1) > 3*splitSlots {
		s.split(t)
	}
	if t.parts != nil {
		s.add(&t.parts[partOf(s.at(p).key())], p)
		t.len++
		return
	}
	s.add(t, p)
}

func (s *Store[T]) split(t *Table) {
	old := t.slots
	t.slots, t.parts = nil, make([]Table, 1<<partBits)
	for _, p := range old {
		if p != 0 {
			s.add(&t.parts[partOf(s.at(p).key())], p)
		}
	}
}

// add implements keep for a part, or for a table without parts.
func (s *Store[T]) add(t *Table, p Slot) {
	if 4*(t.len+1) > 3*len(t.slots) {
		s.resize(t, max(2*len(t.slots), leastSlots))
	}
	s.place(t, p)
	t.len++
}

func (s *Store[T]) place(t *Table, p Slot) {
	mask := len(t.slots) - 1
	i := int(s.at(p).key()) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = p
}

func (s *Store[T]) resize(t *Table, slots int) {
	old := t.slots
	t.slots = make([]Slot, slots)
	for _, p := range old {
		if p != 0 {
			s.place(t, p)
		}
	}
}

// indexOf returns the index in t.slots that has p.
func (s *Store[T]) indexOf(t *Table, p Slot) int {
	mask := len(t.slots) - 1
	i := int(s.at(p).key()) & mask
	for t.slots[i] != p {
		i = (i + 1) & mask
	}
	return i
}

func (s *Store[T]) drop(t *Table, p Slot) {
	if t.parts != nil {
		s.drop(&t.parts[partOf(s.at(p).key())], p)
		if t.len--; t.len == 0 {
			t.parts = nil
		}
		return
	}
	mask := len(t.slots) - 1
	i := s.indexOf(t, p)
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		if home := int(s.at(t.slots[j]).key()) & mask; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
	t.len--
	switch {
	case t.len == 0:
		t.slots = nil
	case 4*t.len < len(t.slots) && len(t.slots) > leastSlots:
		s.resize(t, len(t.slots)/2)
	}
}
