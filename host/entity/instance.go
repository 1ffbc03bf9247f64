package entity

import (
	"slices"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/sharding"
)

// guestInstance is a guest and the entities whose states it holds, by handle.
// Handles are dense and used again after a drop. While a visit is under way
// nothing else may be called, so entities wait, and handles are dropped after
// it.
type guestInstance[E comparable] struct {
	pool     *instancePool[E]
	guest    Guest           // nil until the first visit has returned
	entities []E             // by handle; zero where free
	dormant  []resident.Slot // by handle, of those that are dormant; 0 for others
	free     []uint32
	number   uint32
	bytes    int64 // of guest memory, after the last visit
	resident int
	capacity int  // most entities that it held at this size
	alone    bool // reserved for one entity that faulted before
	closed   bool
	busy     bool // a visit is under way
	blocked  []E  // wait for its end
	leaving  []uint32
}

// Pool is where the instance is.
func (in *guestInstance[E]) Pool() *instancePool[E] { return in.pool }

// Number names the instance in its lane.
func (in *guestInstance[E]) Number() uint32 { return in.number }

// Bytes is the guest's memory after the last visit.
func (in *guestInstance[E]) Bytes() int64 { return in.bytes }

// Resident is how many entities are in the instance.
func (in *guestInstance[E]) Resident() int { return in.resident }

// Alone reports that the instance is reserved for one entity.
func (in *guestInstance[E]) Alone() bool { return in.alone }

// Closed reports that the instance was given up.
func (in *guestInstance[E]) Closed() bool { return in.closed }

// Busy reports that a visit is under way.
func (in *guestInstance[E]) Busy() bool { return in.busy }

// Opened reports that there is a guest.
func (in *guestInstance[E]) Opened() bool { return in.guest != nil }

// Guest is the guest; nil before the first visit.
func (in *guestInstance[E]) Guest() Guest { return in.guest }

// Entities are those in the instance by handle, zero where there is none.
func (in *guestInstance[E]) Entities() []E { return in.entities }

// MostlyEmpty reports that a guest which has grown to so many bytes holds less
// than a quarter of what it could.
func (in *guestInstance[E]) MostlyEmpty(grown int64) bool {
	return in.bytes >= grown && in.resident*4 < in.capacity
}

// Begin begins a visit to the guest, about an entity.
func (in *guestInstance[E]) Begin(about sharding.EntityID) Guest {
	if in.busy = true; in.guest != nil {
		in.guest.About(about)
	}
	return in.guest
}

// End ends a visit, which may have opened the guest.
func (in *guestInstance[E]) End(guest Guest) {
	in.busy = false
	if in.guest = guest; guest == nil {
		return
	}
	if n := guest.MemoryBytes(); n != in.bytes {
		in.bytes, in.capacity = n, in.resident
	}
}

// Block lets an entity wait for the end of the visit.
func (in *guestInstance[E]) Block(e E) { in.blocked = append(in.blocked, e) }

// Unblock returns the entities that waited.
func (in *guestInstance[E]) Unblock() []E {
	blocked := in.blocked
	in.blocked = nil
	return blocked
}

// Forgo takes an entity out of those that wait.
func (in *guestInstance[E]) Forgo(e E) {
	in.blocked = slices.DeleteFunc(in.blocked, func(x E) bool { return x == e })
}

// Attach takes an entity in, and returns its handle.
func (in *guestInstance[E]) Attach(e E) (h uint32) {
	if n := len(in.free); n > 0 {
		h = in.free[n-1]
		in.free = in.free[:n-1]
		in.entities[h] = e
	} else {
		h = uint32(len(in.entities))
		in.entities = append(in.entities, e)
	}
	in.resident++
	in.capacity = max(in.capacity, in.resident)
	return h
}

// Detach takes the entity of a handle out; begun says that the guest has its
// state. It fails when the guest faults while it forgets.
func (in *guestInstance[E]) Detach(h uint32, begun bool) error {
	var none E
	in.resident--
	in.entities[h] = none
	if begun && in.busy {
		in.leaving = append(in.leaving, h)
		return nil
	}
	if begun {
		if err := in.guest.Drop(uint64(h)); err != nil {
			return err
		}
	}
	in.free = append(in.free, h)
	return nil
}

// DropLeaving has the guest forget the entities that left during a visit.
func (in *guestInstance[E]) DropLeaving() error {
	for _, h := range in.leaving {
		if err := in.guest.Drop(uint64(h)); err != nil {
			return err
		}
		in.free = append(in.free, h)
	}
	in.leaving = in.leaving[:0]
	return nil
}

// SetDormant puts a record in the place of an entity.
func (in *guestInstance[E]) SetDormant(h uint32, p resident.Slot) {
	var none E
	in.entities[h] = none
	if int(h) >= len(in.dormant) {
		in.dormant = append(in.dormant, make([]resident.Slot, len(in.entities)-len(in.dormant))...)
	}
	in.dormant[h] = p
}

// MoveDormant notes where a record lies now.
func (in *guestInstance[E]) MoveDormant(h uint32, p resident.Slot) { in.dormant[h] = p }

// Wake puts an entity in the place of its record.
func (in *guestInstance[E]) Wake(h uint32, e E) { in.dormant[h], in.entities[h] = 0, e }

// Dormant are the records of dormant entities by handle, 0 where there is none.
func (in *guestInstance[E]) Dormant() []resident.Slot { return in.dormant }

// ForgetDormant takes all dormant entities out.
func (in *guestInstance[E]) ForgetDormant() {
	for _, p := range in.dormant {
		if p != 0 {
			in.resident--
		}
	}
	in.dormant = nil
}

// CloseGuest closes the guest, if there is one.
func (in *guestInstance[E]) CloseGuest() (err error) {
	if in.guest != nil {
		err = in.guest.Close()
		in.guest = nil
	}
	return err
}
