package entity

import (
	"bytes"

	"github.com/hostd/hostd/journal"
)

// A sample of the entities that leave memory is checked: before such an entity
// leaves, the executor takes its state from the guest, in a turn of its own,
// and a StateChecker compares it with the state that follows from the journal.
//
//	sampled --is about to leave--> due --its turn--> state taken, leaves
//
// An entity that leaves for a different reason, with its instance or its shard,
// is not checked.

// residentCheck is the state check of an entity for one stay in memory, from a
// load to the next eviction. It is zero if the stay is not in the sample.
type residentCheck struct {
	sampled bool
	due     bool             // the state must be taken in the entity's next turn
	leaves  bool             // the entity then leaves memory
	from    journal.Sequence // sequence of the snapshot from which the entity was loaded; 0 if it was loaded from the first event
}

// stateCheck checks the states of some entities that leave memory. Its methods
// never block.
type stateCheck interface {
	// Picks reports whether the stay in memory that begins now is sampled.
	Picks() bool
	// Room reports whether another state would be accepted now.
	Room() bool
	// Offer submits a state for a check.
	Offer(*checkedState)
}

// beginStateCheck notes that a stay in memory has begun, from the snapshot at
// sequence from, or from the first event if from is 0.
func (e *entity) beginStateCheck(states stateCheck, from journal.Sequence) {
	if states != nil && states.Picks() && !e.typ.Transient {
		e.withExtra().stateCheck = residentCheck{sampled: true, from: from}
	}
}

// mustCheckFirst reports whether the entity must not leave yet because its state
// is taken in its next turn. A deleted entity has no state.
func (c *core) mustCheckFirst(e *entity, leaves bool) bool {
	if e.phase != inMemory || e.shard.state != leading || e.extra == nil || !e.extra.stateCheck.sampled || e.extra.stateCheck.due || !e.exists ||
		!c.opts.States.Room() || !c.snapshots.mayAsk(e.typ.Digest) {
		return false
	}
	e.extra.stateCheck.due, e.extra.stateCheck.leaves = true, leaves
	c.enqueue(e)
	return true
}

func (e *entity) isCheckDue() bool {
	return e.phase == inMemory && e.extra != nil && e.extra.stateCheck.due
}

// takeState asks the guest for the state.
func (c *core) takeState(e *entity) {
	e.extra.stateCheck.sampled, e.extra.stateCheck.due = false, false
	v := c.call
	v.kind, v.in, v.entity, v.handle = callState, e.inst, e, uint64(e.handle)
	c.makeCall(v)
}

// offerState submits the state for a check. An entity that was about to leave
// then leaves.
func (c *core) offerState(e *entity, v *guestCall) {
	stay := e.extra.stateCheck
	if v.err != nil {
		e.extra.stateCheck = residentCheck{}
		if c.noSnapshot(e, v.err); stay.leaves && e.inst != nil {
			c.leave(e)
		}
		return
	}
	e.extra.stateCheck = residentCheck{}
	e.trimExtra()
	c.opts.States.Offer(&checkedState{
		ID: e.id, Shard: e.shard.id, Type: e.typ, From: stay.from, Sequence: e.sequence, Hash: e.hash, Bytes: bytes.Clone(v.out),
	})
	if stay.leaves {
		c.leave(e)
	}
}
