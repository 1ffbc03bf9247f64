package entity

import (
	"bytes"

	"github.com/hostd/hostd/journal"
)

// Some stays in memory end with a check of the state: before the entity leaves
// its guest is asked for it, in a turn of its own, and a StateChecker
// compares it with what the journal makes of it.
//
//	sampled --comes to leave--> due --its turn--> taken: leaves as any other
//
// One that leaves in any other way, with its instance or its shard, is not
// checked.

// residence is of a stay in memory that is to be checked; zero for others.
type residence struct {
	sampled bool
	due     bool             // its state is to be taken in its next turn
	leaves  bool             // it leaves then
	from    journal.Sequence // of the snapshot that it began with; 0: with the first event
}

// StateCheck takes the states of some entities that leave memory. Its methods
// never block.
type StateCheck interface {
	// Picks reports whether the stay in memory that begins now is to be checked.
	Picks() bool
	// Room reports whether another state would be taken now.
	Room() bool
	// Offer hands a state over.
	Offer(*checkedState)
}

// beginStay notes that a stay in memory has begun, from a snapshot or from 0.
func (e *entity) beginStay(states StateCheck, from journal.Sequence) {
	if states != nil && states.Picks() && !e.typ.Transient {
		e.withExtra().residence = residence{sampled: true, from: from}
	}
}

// checksFirst reports that the entity is not to leave yet: its state is taken
// in its next turn. One that was deleted has none.
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

// stateTaken hands the state over. An entity that was about to leave leaves
// now.
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
