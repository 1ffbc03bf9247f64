package entity

import (
	"bytes"

	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// An entity exists until a record that has a tombstone: its last event, of the
// type journal.TombstoneEvent and without a payload, tells those who read the
// journal. No guest ever gets it: what is loaded afterwards begins anew.

// DeleteAction and SkipTimerAction, followed by the timer's name, are what
// records of a person's requests are remembered under in the place of a
// command.
const (
	DeleteAction    = "delete-entity:"
	SkipTimerAction = "skip-timer:"
)

// remove deletes an entity in a person's name. Where none exists it leaves a
// record too, so that the same request later deletes no other.
func (d *decider) remove(e *entity, r *request.Request) {
	now, hash, done := d.acted(e, r, DeleteAction)
	switch {
	case done:
	case d.readOnly():
		e.shard.settle(r, request.Result{Err: request.ErrReadOnly})
	default:
		d.opts.Logger.Info("an entity is deleted", "entity_type", e.id.Type, "shard_id", e.shard.id, "command_id", string(r.ID))
		d.output.Reset()
		d.fuel = 0
		d.output.Delete = true
		d.append(e, r, Env{Now: now}, hash)
		d.lane.leave(e)
	}
}

// acted answers a person's request that was carried out before, or may have
// been where the entity does not remember so far back. Of another it returns
// the log clock and the hash that is recorded.
func (d *decider) acted(e *entity, r *request.Request, action string) (now int64, hash uint64, done bool) {
	now = e.shard.logNow()
	hash, d.scratch = journal.HashCommand(d.scratch, action, nil)
	return now, hash, e.answerKnown(r, hash, now) || d.mayBeOlder(e, r) || d.forgotten(e, r, now)
}

// A transient entity is in its guest's memory and nowhere else: its commands
// leave no record, and what it was is lost when it leaves memory or its shard
// another leader. So that two nodes never both answer for it, an answer waits
// until this node has confirmed, by a read round asked after the command, that
// it still leads. While it is in memory a command id has its effect once.

// transient answers what a guest has done to an entity that keeps nothing.
func (d *decider) transient(e *entity, r *request.Request, env Env, hash uint64) {
	reply := bytes.Clone(d.output.Reply)
	r.Result = request.Result{Payload: reply, Fuel: d.fuel}
	d.fuel = 0
	d.note(e, window.Command{ID: r.ID, Hash: hash, Reply: reply, RecordedAt: env.Now, Server: r.ServerID})
	if e.extra != nil {
		e.extra.faults.Succeeded()
	}
	e.shard.clock = max(e.shard.clock, env.Now)
	d.stats.Commands++
	leaves := d.output.Passivate && !e.typ.Singleton
	e.shard.awaitCommit(r, e.last, true)
	if leaves {
		d.lane.leave(e)
	}
}

// ofTransient decides a request that would leave a record, on an entity that
// leaves none, and reports whether it was one.
func (d *decider) ofTransient(e *entity, r *request.Request) bool {
	if !e.typ.Transient {
		return false
	}
	switch r.Kind {
	case request.Delete:
		e.shard.settle(r, request.Result{})
		d.lane.leave(e)
	case request.SkipTimer, request.Redeliver:
		e.shard.settle(r, request.Result{Err: &request.RejectedError{Code: request.CodeTransient, Message: "the entities of this type keep nothing"}})
	default:
		return false
	}
	return true
}
