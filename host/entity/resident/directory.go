package resident

import "github.com/hostd/hostd/sharding"

// Directory finds the entities of a shard by their names. It is a hash table
// with linear probing that costs one pointer per slot, and between a quarter
// and three quarters of the slots are used. A map would keep a second copy of
// each name and never shrinks.
//
// To grow or shrink, the table visits every entity. Each visit takes a tenth
// of a microsecond, for which the executor waits. So a large directory splits
// into parts by the first bits of the keys, and each part grows by itself.
type Directory[E Named] struct {
	slots []E // the length is a power of two, or 0
	parts []Directory[E]
	len   int
}

const (
	// splitSlots is the number of slots above which a Directory or a Table
	// splits into parts instead of growing.
	splitSlots = 8192
	partBits   = 8
)

// partOf returns the part that a key belongs to.
func partOf(key uint32) int { return int(key >> (32 - partBits)) }

const leastSlots = 8

// Named is an entity in a Directory: a pointer.
type Named interface {
	comparable
	ID() sharding.EntityID
	// Key is KeyOf of the ID.
	Key() uint32
}

// KeyOf returns a hash of an entity's name, which is its hash table position
// and its key in the cache. The salt prevents callers from choosing names that
// collide.
func KeyOf(salt uint64, id sharding.EntityID) uint32 {
	h := salt
	for _, s := range [...]string{id.Type, id.ID} {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint64(s[i])) * 1099511628211
			h ^= h >> 29
		}
		h *= 0xff51afd7ed558ccd
	}
	return uint32(h ^ h>>32)
}

func (d *Directory[E]) Get(id sharding.EntityID, key uint32) E {
	var none E
	if d.parts != nil {
		return d.parts[partOf(key)].Get(id, key)
	}
	if len(d.slots) == 0 {
		return none
	}
	mask := len(d.slots) - 1
	for i := int(key) & mask; d.slots[i] != none; i = (i + 1) & mask {
		if e := d.slots[i]; e.Key() == key && e.ID() == id {
			return e
		}
	}
	return none
}

// Has reports whether this entity, and not just one with an equal id, is in the
// directory.
func (d *Directory[E]) Has(e E) bool { return d.Get(e.ID(), e.Key()) == e }

// Put adds an entity that is not in the directory.
func (d *Directory[E]) Put(e E) {
	if d.parts == nil && 4*(d.len+1) > 3*splitSlots {
		d.split()
	}
	if d.parts != nil {
		d.parts[partOf(e.Key())].put(e)
		d.len++
		return
	}
	d.put(e)
}

// put implements Put for a part, or for a directory without parts.
func (d *Directory[E]) put(e E) {
	if 4*(d.len+1) > 3*len(d.slots) {
		d.resize(max(2*len(d.slots), leastSlots))
	}
	d.place(e)
	d.len++
}

func (d *Directory[E]) split() {
	old := d.All()
	d.slots, d.parts = nil, make([]Directory[E], 1<<partBits)
	for _, e := range old {
		d.parts[partOf(e.Key())].put(e)
	}
}

func (d *Directory[E]) place(e E) {
	var none E
	mask := len(d.slots) - 1
	i := int(e.Key()) & mask
	for d.slots[i] != none {
		i = (i + 1) & mask
	}
	d.slots[i] = e
}

// Remove removes an entity and reports whether it was in the directory.
func (d *Directory[E]) Remove(e E) bool {
	var none E
	if d.parts != nil {
		if !d.parts[partOf(e.Key())].Remove(e) {
			return false
		}
		if d.len--; d.len == 0 {
			d.parts = nil
		}
		return true
	}
	if len(d.slots) == 0 {
		return false
	}
	mask := len(d.slots) - 1
	i := int(e.Key()) & mask
	for d.slots[i] != e {
		if d.slots[i] == none {
			return false
		}
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; d.slots[j] != none; j = (j + 1) & mask {
		if home := int(d.slots[j].Key()) & mask; (j-home)&mask >= (j-i)&mask {
			d.slots[i] = d.slots[j]
			i = j
		}
	}
	d.slots[i] = none
	d.len--
	switch {
	case d.len == 0:
		d.slots = nil
	case 4*d.len < len(d.slots) && len(d.slots) > leastSlots:
		d.resize(len(d.slots) / 2)
	}
	return true
}

func (d *Directory[E]) resize(slots int) {
	var none E
	old := d.slots
	d.slots = make([]E, slots)
	for _, e := range old {
		if e != none {
			d.place(e)
		}
	}
}

// All returns the entities in no particular order. The slice is a copy, so the
// directory may change meanwhile.
func (d *Directory[E]) All() []E {
	var none E
	out := make([]E, 0, d.len)
	for i := range d.parts {
		out = append(out, d.parts[i].All()...)
	}
	for _, e := range d.slots {
		if e != none {
			out = append(out, e)
		}
	}
	return out
}

// Len is the number of entities.
func (d *Directory[E]) Len() int { return d.len }
