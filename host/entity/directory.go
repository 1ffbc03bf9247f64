package entity

import "github.com/hostd/hostd/sharding"

// directory finds the entities of a shard by their names. It costs one pointer
// for each slot, between two eighths and three quarters of which are taken; a
// map would keep a copy of the name beside it, and never gives room back.
// Whoever finds its slot taken is in the next.
type directory struct {
	slots []*entity // a power of two, or none
	len   int
}

const leastSlots = 8

// key is a hash of an entity's name: where the search for it begins, and what
// the cache counts. The salt keeps callers from choosing names that collide.
func (c *core) key(id sharding.EntityID) uint32 {
	h := c.salt
	for _, s := range [...]string{id.Type, id.ID} {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint64(s[i])) * 1099511628211
			h ^= h >> 29
		}
		h *= 0xff51afd7ed558ccd
	}
	return uint32(h ^ h>>32)
}

func (d *directory) get(id sharding.EntityID, key uint32) *entity {
	if len(d.slots) == 0 {
		return nil
	}
	mask := len(d.slots) - 1
	for i := int(key) & mask; d.slots[i] != nil; i = (i + 1) & mask {
		if e := d.slots[i]; e.key == key && e.id == id {
			return e
		}
	}
	return nil
}

// has reports whether the entity itself is in.
func (d *directory) has(e *entity) bool { return d.get(e.id, e.key) == e }

// put adds an entity that is not in.
func (d *directory) put(e *entity) {
	if 4*(d.len+1) > 3*len(d.slots) {
		d.resize(max(2*len(d.slots), leastSlots))
	}
	d.place(e)
	d.len++
}

func (d *directory) place(e *entity) {
	mask := len(d.slots) - 1
	i := int(e.key) & mask
	for d.slots[i] != nil {
		i = (i + 1) & mask
	}
	d.slots[i] = e
}

// remove takes an entity out and reports whether it was in.
func (d *directory) remove(e *entity) bool {
	if len(d.slots) == 0 {
		return false
	}
	mask := len(d.slots) - 1
	i := int(e.key) & mask
	for d.slots[i] != e {
		if d.slots[i] == nil {
			return false
		}
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; d.slots[j] != nil; j = (j + 1) & mask {
		if home := int(d.slots[j].key) & mask; (j-home)&mask >= (j-i)&mask {
			d.slots[i] = d.slots[j]
			i = j
		}
	}
	d.slots[i] = nil
	d.len--
	switch {
	case d.len == 0:
		d.slots = nil
	case 4*d.len < len(d.slots) && len(d.slots) > leastSlots:
		d.resize(len(d.slots) / 2)
	}
	return true
}

func (d *directory) resize(slots int) {
	old := d.slots
	d.slots = make([]*entity, slots)
	for _, e := range old {
		if e != nil {
			d.place(e)
		}
	}
}

// all are the entities, in no order; the directory may change meanwhile.
func (d *directory) all() []*entity {
	out := make([]*entity, 0, d.len)
	for _, e := range d.slots {
		if e != nil {
			out = append(out, e)
		}
	}
	return out
}
