package resident

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// TestDirectoryMatchesMap adds and removes entities, many of them with
// equal keys, and looks up all of them.
func TestDirectoryMatchesMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var d Directory[*member]
		in := map[sharding.EntityID]*member{}
		most := 1 + rnd.IntN(500)
		for step := range 5000 {
			id := sharding.EntityID{Type: "t", ID: fmt.Sprint(rnd.IntN(most))}
			key := uint32(len(id.ID)) * 0x9e3779b1 * uint32(id.ID[0]&3)
			e := d.Get(id, key)
			if e != in[id] {
				t.Fatalf("seed %d, step %d: found %v, want %v", seed, step, e, in[id])
			}
			stranger := &member{id: id, key: key}
			if d.Has(stranger) || d.Remove(stranger) {
				t.Fatalf("seed %d, step %d: a different entity with the same id is found", seed, step)
			}
			switch {
			case e == nil:
				in[id] = stranger
				d.Put(stranger)
			case rnd.IntN(3) > 0 || step > 4000:
				delete(in, id)
				if !d.Remove(e) {
					t.Fatalf("seed %d, step %d: it is not removed", seed, step)
				}
			}
			if d.len != len(in) || len(d.slots) > max(leastSlots, 4*d.len+4) {
				t.Fatalf("seed %d, step %d: %d entities in %d slots, want %d", seed, step, d.len, len(d.slots), len(in))
			}
		}
		for _, e := range d.All() {
			d.Remove(e)
		}
		if len(d.slots) > 0 {
			t.Fatalf("seed %d: an empty directory has %d slots", seed, len(d.slots))
		}
	}
}

// TestLargeDirectorySplitsIntoParts checks that no part has more slots than
// its share, so that growing a part visits few entities, that all entities
// are found, and that an empty directory keeps no memory.
func TestLargeDirectorySplitsIntoParts(t *testing.T) {
	const entities = 200_000
	var d Directory[*member]
	all := make([]*member, entities)
	for i := range all {
		id := sharding.EntityID{Type: "t", ID: fmt.Sprint(i)}
		all[i] = &member{id: id, key: KeyOf(7, id)}
		d.Put(all[i])
		if len(d.slots) > splitSlots {
			t.Fatalf("%d entities in a directory of %d slots", i, len(d.slots))
		}
	}
	for i := range d.parts {
		if n := len(d.parts[i].slots); n > 8*entities>>partBits {
			t.Errorf("part %d has %d slots", i, n)
		}
	}
	if n := len(d.All()); d.Len() != entities || n != entities {
		t.Errorf("%d and %d entities, want %d", d.Len(), n, entities)
	}
	for i, e := range all {
		if d.Get(e.id, e.key) != e || !d.Has(e) {
			t.Fatalf("%d is not found", i)
		}
		if i%2 == 0 && (!d.Remove(e) || d.Remove(e) || d.Has(e)) {
			t.Fatalf("%d is not removed", i)
		}
	}
	if d.Len() != entities/2 {
		t.Errorf("%d entities are left", d.Len())
	}
	for _, e := range d.All() {
		d.Remove(e)
	}
	if d.Len() != 0 || d.slots != nil || d.parts != nil {
		t.Errorf("%d entities in %d slots and %d parts", d.Len(), len(d.slots), len(d.parts))
	}
}
