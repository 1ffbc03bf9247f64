package entity

import (
	"github.com/hostd/hostd/journal"
)

// An entity's life ends with a record that has a tombstone: its last event, of
// the type tombstoneEvent and without a payload, tells those who read the
// journal. No guest ever gets it: what is loaded afterwards begins anew.

// tombstoneEvent is the type of the event that ends a life.
const tombstoneEvent = journal.TombstoneEvent

// DeleteAct and SkipTimerAct, followed by the timer's name, are what records of
// a person's requests are remembered under in the place of a command.
const (
	DeleteAct    = "delete-entity:"
	SkipTimerAct = "skip-timer:"
)

// remove ends an entity's life in a person's name. That of an entity without a
// life leaves a record too, so that the same request later ends no other.
func (c *core) remove(e *entity, r *Request) {
	now := c.logNow(e.shard)
	var hash uint64
	hash, c.scratch = journal.HashCommand(c.scratch, DeleteAct, nil)
	switch {
	case c.remembered(e, r, hash, now) || c.unsure(e, r) || c.forgotten(e, r, now):
	case c.readOnly():
		c.settle(e.shard, r, Result{Err: ErrReadOnly})
	default:
		c.opts.Logger.Info("an entity is deleted", "entity_type", e.id.Type, "shard_id", e.shard.id, "command_id", string(r.ID))
		c.output.Reset()
		c.fuel = 0
		c.output.Delete = true
		c.append(e, r, Env{Now: now}, hash)
		c.leave(e)
	}
}
