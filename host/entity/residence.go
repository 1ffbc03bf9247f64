package entity

import (
	"bytes"

	"github.com/hostd/hostd/journal"
)

// A sample of the entities that leave memory is checked: before such an entity
// leaves, its guest is asked for its state, in a turn of its own, and a
// StateChecker compares this with the state that the journal gives.
//
//	sampled --is about to leave--> due --its turn--> state taken, leaves
//
// An entity that leaves for a different reason, with its instance or its shard,
// is not checked.

// residence is the state check of a stay in memory. It is zero if the stay is
// not sampled.
type residence struct {
	sampled bool
	due     bool             // its state must be taken in its next turn
	leaves  bool             // it then leaves memory
	from    journal.Sequence // sequence of the snapshot that it was loaded from; 0 for the first event
}

// StateCheck checks the states of some entities that leave memory. Its methods
// never block.
type StateCheck interface {
	// Picks reports whether the stay in memory that begins now is sampled.
	Picks() bool
	// Room reports whether another state would be accepted now.
	Room() bool
	// Offer submits a state for a check.
	Offer(*checkedState)
}

// beginStay notes that a stay in memory has begun, from the snapshot at
// sequence from, or from the first event if from is 0.
func (e *entity) beginStay(states StateCheck, from journal.Sequence) {
	if states != nil && states.Picks() && !e.typ.Transient {
		e.withExtra().residence = residence{sampled: true, from: from}
	}
}

// checksFirst reports whether the entity must not leave yet because its state
// is taken in its next turn. A deleted entity has no state.
func (c *core) checksFirst(e *entity, leaves bool) bool {
	if e.phase != inMemory || e.shard.state != leading || e.extra == nil || !e.extra.residence.sampled || e.extra.residence.due || !e.exists ||
		!c.opts.States.Room() || !c.snapshots.mayAsk(e.typ.Digest) {
		return false
	}
	e.extra.residence.due, e.extra.residence.leaves = true, leaves
	c.enqueue(e)
	return true
}

func (e *entity) checkDue() bool {
	return e.phase == inMemory && e.extra != nil && e.extra.residence.due
}

// takeState asks the guest for the state.
func (c *core) takeState(e *entity) {
	e.extra.residence.sampled, e.extra.residence.due = false, false
	v := c.call
	v.kind, v.in, v.entity, v.handle = callState, e.inst, e, uint64(e.handle)
	c.visit(v)
}

// stateTaken submits the state for a check. An entity that was about to leave
// then leaves.
func (c *core) stateTaken(e *entity, v *guestCall) {
	stay := e.extra.residence
	if v.err != nil {
		e.extra.residence = residence{}
		if c.noSnapshot(e, v.err); stay.leaves && e.inst != nil {
			c.leave(e)
		}
		return
	}
	e.extra.residence = residence{}
	e.trimExtra()
	c.opts.States.Offer(&checkedState{
		ID: e.id, Shard: e.shard.id, Type: e.typ, From: stay.from, Sequence: e.sequence, Hash: e.hash, Bytes: bytes.Clone(v.out),
	})
	if stay.leaves {
		c.leave(e)
	}
}
