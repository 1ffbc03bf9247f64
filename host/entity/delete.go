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
	now, hash, done := c.acted(e, r, DeleteAct)
	switch {
	case done:
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

// acted answers a person's request that was carried out before, or may have been
// where the entity does not remember so far back. Of another it returns the log
// clock and the hash that is recorded.
func (c *core) acted(e *entity, r *Request, act string) (now int64, hash uint64, done bool) {
	now = c.logNow(e.shard)
	hash, c.scratch = journal.HashCommand(c.scratch, act, nil)
	return now, hash, c.remembered(e, r, hash, now) || c.unsure(e, r) || c.forgotten(e, r, now)
}
