package entity

import (
	"slices"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/sharding"
)

// guestInstance is a guest and the entities whose states it has, by handle.
// Handles are dense and are reused after a drop. During a guest call no other
// call is possible, so entities wait, and handles are dropped after the call.
type guestInstance[E comparable] struct {
	pool       *instancePool[E]
	guest      Guest           // nil until the first call has returned
	entities   []E             // entities by handle; zero if a handle is free
	hibernated []resident.Slot // slots of hibernated entities by handle; 0 for others
	free       []uint32
	number     uint32
	bytes      int64 // size of guest memory after the last call
	resident   int
	capacity   int  // largest number of entities that the instance has had at this size
	reserved   bool // reserved for one entity that faulted before
	closed     bool
	busy       bool // a call is in progress
	blocked    []E  // entities that wait for the end of the call
	leaving    []uint32
}

// Pool is the instance's pool.
func (in *guestInstance[E]) Pool() *instancePool[E] { return in.pool }

// Number identifies the instance in its executor.
func (in *guestInstance[E]) Number() uint32 { return in.number }

// Bytes is the guest's memory after the last call.
func (in *guestInstance[E]) Bytes() int64 { return in.bytes }

// Resident is the number of entities in the instance.
func (in *guestInstance[E]) Resident() int { return in.resident }

// IsReserved reports whether the instance is reserved for one entity.
func (in *guestInstance[E]) IsReserved() bool { return in.reserved }

// IsClosed reports whether the instance is closed.
func (in *guestInstance[E]) IsClosed() bool { return in.closed }

// IsBusy reports whether a call is in progress.
func (in *guestInstance[E]) IsBusy() bool { return in.busy }

// HasGuest reports whether the instance has a guest.
func (in *guestInstance[E]) HasGuest() bool { return in.guest != nil }

// Guest is the guest, or nil before the first call.
func (in *guestInstance[E]) Guest() Guest { return in.guest }

// Entities are the instance's entities by handle, zero if a handle is free.
func (in *guestInstance[E]) Entities() []E { return in.entities }

// IsMostlyEmpty reports whether the guest has grown to at least grown bytes and
// has less than a quarter of the entities that fit into it.
func (in *guestInstance[E]) IsMostlyEmpty(grown int64) bool {
	return in.bytes >= grown && in.resident*4 < in.capacity
}

// Begin begins a guest call for an entity.
func (in *guestInstance[E]) Begin(about sharding.EntityID) Guest {
	if in.busy = true; in.guest != nil {
		in.guest.About(about)
	}
	return in.guest
}

// End ends a call, which may have opened the guest.
func (in *guestInstance[E]) End(guest Guest) {
	in.busy = false
	if in.guest = guest; guest == nil {
		return
	}
	if n := guest.MemoryBytes(); n != in.bytes {
		in.bytes, in.capacity = n, in.resident
	}
}

// Block makes an entity wait for the end of the call.
func (in *guestInstance[E]) Block(e E) { in.blocked = append(in.blocked, e) }

// Unblock returns the entities that wait.
func (in *guestInstance[E]) Unblock() []E {
	blocked := in.blocked
	in.blocked = nil
	return blocked
}

// RemoveBlocked removes an entity from the entities that wait.
func (in *guestInstance[E]) RemoveBlocked(e E) {
	in.blocked = slices.DeleteFunc(in.blocked, func(x E) bool { return x == e })
}

// Attach adds an entity and returns its handle.
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

// Detach removes the entity of a handle. begun reports that the guest has the
// entity's state. Detach fails if the guest faults while it drops the state.
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

// DropLeaving drops the states of entities that left during a call.
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

// SetHibernated replaces an entity by its record.
func (in *guestInstance[E]) SetHibernated(h uint32, p resident.Slot) {
	var none E
	in.entities[h] = none
	if int(h) >= len(in.hibernated) {
		in.hibernated = append(in.hibernated, make([]resident.Slot, len(in.entities)-len(in.hibernated))...)
	}
	in.hibernated[h] = p
}

// MoveHibernated notes the new slot of a record.
func (in *guestInstance[E]) MoveHibernated(h uint32, p resident.Slot) { in.hibernated[h] = p }

// Wake replaces the record of a hibernated entity by the entity.
func (in *guestInstance[E]) Wake(h uint32, e E) { in.hibernated[h], in.entities[h] = 0, e }

// HibernatedSlots are the slots of hibernated entities by handle, 0 if there is none.
func (in *guestInstance[E]) HibernatedSlots() []resident.Slot { return in.hibernated }

// ForgetHibernated removes all hibernated entities.
func (in *guestInstance[E]) ForgetHibernated() {
	for _, p := range in.hibernated {
		if p != 0 {
			in.resident--
		}
	}
	in.hibernated = nil
}

// CloseGuest closes the guest, if there is one.
func (in *guestInstance[E]) CloseGuest() (err error) {
	if in.guest != nil {
		err = in.guest.Close()
		in.guest = nil
	}
	return err
}
