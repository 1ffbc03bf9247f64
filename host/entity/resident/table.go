package resident

import "github.com/hostd/hostd/sharding"

// Table is the dormant entities of a shard: where they lie by a hash of their
// names, as in a Directory.
type Table struct {
	slots []Slot // 0 where free
	len   int
}

// Len is how many entities are in.
func (t *Table) Len() int { return t.len }

// Slots are all of them, 0 between them; the caller does not change it, and
// copies it where the table changes meanwhile.
func (t *Table) Slots() []Slot { return t.slots }

// Find returns where a dormant entity lies; 0 when it is not in the table.
func (s *Store[T]) Find(t *Table, id sharding.EntityID, key uint32) Slot {
	if t.len == 0 {
		return 0
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

// indexOf is the slot that holds a place.
func (s *Store[T]) indexOf(t *Table, p Slot) int {
	mask := len(t.slots) - 1
	i := int(s.at(p).key()) & mask
	for t.slots[i] != p {
		i = (i + 1) & mask
	}
	return i
}

func (s *Store[T]) drop(t *Table, p Slot) {
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
