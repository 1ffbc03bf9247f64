package entity

import (
	"fmt"
	"strings"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
)

// fire decides a timer's command. No client knows the command's id, so the
// idempotency window neither contains nor checks it.
func (d *decider) fire(e *entity, r *request.Request, f *timers.Firing, now int64) {
	f.MarkLoaded()
	switch {
	case f.IsStale():
		e.shard.settle(r, request.Result{Err: timers.ErrStale})
	case d.readOnly():
		e.shard.settle(r, request.Result{Err: request.ErrReadOnly})
	case d.opts.Settings.IsSuspended(e.id.Type):
		e.shard.settle(r, request.Result{Err: request.ErrSuspended})
	case !d.chargeRate(e, r):
	case f.Timer.Schedule != nil && !d.fireSchedule(e, r, f, now):
	case !e.typ.hasCommand(r.Name) && f.Timer.Schedule == nil:
		// A module activated by mistake must not use up the timer. The timer is
		// retried later, as after a fault, until a module has the command.
		d.opts.Logger.Warn("timer waits: the entity type has no such command", "entity_type", e.id.Type, "shard_id", e.shard.id, "command", r.Name)
		e.shard.settle(r, request.Result{Err: request.ErrUnknownCommand})
	case !e.typ.hasCommand(r.Name):
		d.opts.Logger.Warn("scheduled command skipped: the entity type has no such command", "entity_type", e.id.Type, "shard_id", e.shard.id, "command", r.Name)
		d.fuel = 0
		d.endTimer(e, r, Env{Now: now}, false)
	default:
		d.handle(e, r, now, 0)
	}
}

// fireSchedule prepares the next tick of a schedule, and reports whether the
// command of the current tick must be executed.
func (d *decider) fireSchedule(e *entity, r *request.Request, f *timers.Firing, now int64) bool {
	skip, err := f.Renew(now)
	if err != nil {
		d.opts.Logger.Error("cannot continue a schedule", "entity_type", e.id.Type, "shard_id", e.shard.id, "error", err)
		e.shard.settle(r, request.Result{Err: err})
		return false
	}
	if skip {
		d.fuel = 0
		d.endTimer(e, r, Env{Now: now}, false)
		return false
	}
	return true
}

// checkTimerRoom returns an error if the output would exceed the entity's limit of
// timers, or if that is unknown because other commands of the entity are
// undecided. A timer that is set again counts once.
func (d *decider) checkTimerRoom(e *entity) error {
	var names [][]byte
	for i := range d.output.Timers {
		if t := &d.output.Timers[i]; !t.Cancel {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 || d.output.Delete {
		return nil
	}
	s, most := e.shard, d.opts.Settings.MaxTimers(e.id.Type)
	has, added := d.opts.Histories.TimerRoom(s.id, e.id, names)
	switch flying := s.timers.InFlight(e.id, s.log.DecidedTo()); {
	case has+added+flying <= most:
		return nil
	case has+added <= most:
		return fmt.Errorf("%w: the entity has %d timers, and its commands in flight may add %d; at most %d are allowed", request.ErrBusy, has, flying, most)
	}
	return &request.RejectedError{Code: codeOutOfRange, Message: fmt.Sprintf("max-timers: the entity has %d timers and the command adds %d, at most %d are allowed", has, added, most)}
}

// codeOutOfRange is the code of the host's rejections of outputs that exceed a
// limit.
const codeOutOfRange = "out_of_range"

// endTimer ends a timer whose command the entity does not have or has rejected.
// The command has no other effect. A schedule continues with its next tick.
func (d *decider) endTimer(e *entity, r *request.Request, env Env, evolved bool) {
	d.output.Reset()
	if d.append(e, r, env, 0) && evolved {
		d.exec.reload(e)
	}
}

// skipTimer cancels a timer, for an operator.
func (d *decider) skipTimer(e *entity, r *request.Request) {
	now, hash, done := d.answerKnownAction(e, r, SkipTimerAction+r.Name)
	switch {
	case done:
	case r.Name == "" || len(r.Name) > abi.MaxNameBytes || strings.IndexByte(r.Name, 0) >= 0:
		e.shard.settle(r, request.Result{Err: request.ErrUnknownCommand})
	case d.readOnly():
		e.shard.settle(r, request.Result{Err: request.ErrReadOnly})
	default:
		d.opts.Logger.Info("skipping a timer", "entity_type", e.id.Type, "shard_id", e.shard.id, "command_id", string(r.ID))
		d.output.Reset()
		d.fuel = 0
		d.output.Timers = append(d.output.Timers, abi.Timer{Name: []byte(r.Name), Cancel: true})
		d.append(e, r, Env{Now: now}, hash)
	}
}
