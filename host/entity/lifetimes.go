package entity

import (
	"bytes"

	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// An entity exists until a record with a tombstone. That record's last event
// has the type journal.TombstoneEvent and no payload, and informs readers of
// the journal. Guests never get this event, because a load after a deletion
// starts with an empty history.

// In the idempotency window, an operator's request has DeleteAction, or
// SkipTimerAction followed by the timer's name, instead of a command name.
const (
	DeleteAction    = "delete-entity:"
	SkipTimerAction = "skip-timer:"
)

// remove deletes an entity for an operator. It writes a record even if the
// entity does not exist, so that a retry of the request does not delete a later
// entity with the same id.
func (d *decider) remove(e *entity, r *request.Request) {
	now, hash, done := d.answerKnownAction(e, r, DeleteAction)
	switch {
	case done:
	case d.readOnly():
		e.shard.settle(r, request.Result{Err: request.ErrReadOnly})
	default:
		d.opts.Logger.Info("deleting an entity", "entity_type", e.id.Type, "shard_id", e.shard.id, "command_id", string(r.ID))
		d.output.Reset()
		d.fuel = 0
		d.output.Delete = true
		if d.append(e, r, Env{Now: now}, hash) {
			d.exec.leave(e)
		}
	}
}

// answerKnownAction answers an operator's request that was executed before, or that may
// have been executed and forgotten. For a new request it returns the log clock
// and the hash to record.
func (d *decider) answerKnownAction(e *entity, r *request.Request, action string) (now int64, hash uint64, done bool) {
	now = e.shard.logNow()
	hash, d.scratch = journal.HashCommand(d.scratch, action, nil)
	return now, hash, e.answerKnown(r, hash, now) || d.mayBeOlder(e, r) || d.rejectForgotten(e, r, now)
}

// A transient entity exists only in its guest's memory. Its commands write no
// record, and its state is lost when it leaves memory or its shard gets
// another leader. An answer waits for a ReadIndex round requested after the
// command, so that two nodes never both answer for the entity. While the
// entity is in memory, a command id takes effect once.

// answerTransient answers a command that a guest has executed on a transient entity.
func (d *decider) answerTransient(e *entity, r *request.Request, env Env, hash uint64) {
	reply := bytes.Clone(d.output.Reply)
	r.Result = request.Result{Payload: reply, Fuel: d.fuel}
	d.fuel = 0
	d.note(e, window.Command{ID: r.ID, Hash: hash, Reply: reply, RecordedAt: env.Now, Server: r.ServerID})
	if e.extra != nil {
		e.extra.faults.ResetCount()
	}
	e.shard.clock = max(e.shard.clock, env.Now)
	d.stats.Commands++
	leaves := d.output.Passivate && !e.typ.Singleton
	e.shard.awaitCommit(r, e.last, true)
	if leaves {
		d.exec.leave(e)
	}
}

// decideTransient reports whether the entity is transient. If it is, it answers
// the request, which would otherwise write a record.
func (d *decider) decideTransient(e *entity, r *request.Request) bool {
	if !e.typ.Transient {
		return false
	}
	switch r.Kind {
	case request.Delete:
		e.shard.settle(r, request.Result{})
		d.exec.leave(e)
	case request.SkipTimer, request.Redeliver:
		e.shard.settle(r, request.Result{Err: &request.RejectedError{Code: request.CodeTransient, Message: "the entity type is transient: its entities have no stored state"}})
	default:
		return false
	}
	return true
}
