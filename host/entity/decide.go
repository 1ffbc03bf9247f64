package entity

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// decider decides requests on entities in memory. It passes them to guests and
// turns a guest's output into a rejection or a record in the open batch of the
// entity's shard.
type decider struct {
	*base
	exec   deciderExecutor
	timers *timers.Timers
	types  *typeCounters

	scratch []byte
	fuel    uint64 // fuel of the command being decided
	record  recordBuilder
	refusal *journal.Refusal // why the next record rejects its message; nil if it does not
	output  abi.Output

	refusals *Rate // limits the log lines about dead letters
	unlogged int   // dead letters that were not logged since the last log line
}

// deciderExecutor is the part of the executor that a decider calls.
type deciderExecutor interface {
	// nextCall returns an empty guestCall for makeCall. When the call returns,
	// its output arrives in finishCommand or finishQuery.
	nextCall() *guestCall
	makeCall(*guestCall)
	// answerFailure answers a request whose guest call failed.
	answerFailure(*entity, *request.Request, error)
	// reload discards the state of an entity that includes events which will
	// not be written.
	reload(*entity)
	// checkpoint stores the payload of a run's checkpoint as its snapshot.
	checkpoint(e *entity, payload []byte)
	// leave passivates an entity that must not be started before its next
	// request.
	leave(*entity)
	// dispatch queues a request again, so that it is decided once more.
	dispatch(*shard, *request.Request)
}

// command decides a command on an entity in memory: it answers a duplicate,
// rejects the command, or executes it and adds a record to the shard's open
// batch.
func (d *decider) command(e *entity, r *request.Request) {
	s := e.shard
	now := s.logNow()
	if f := timers.Of(r); f != nil {
		d.fire(e, r, f, now)
		return
	}
	if refusesClient(e.typ, r) { // even if the command's id is known
		s.settle(r, request.Result{Err: request.ErrInternalCommand})
		return
	}
	var hash uint64
	hash, d.scratch = journal.HashCommand(d.scratch, r.Name, r.Payload)
	if e.answerKnown(r, hash, now) || d.mayBeOlder(e, r) || d.rejectForgotten(e, r, now) {
		return
	}
	if r.ExpectedSequence != request.NoExpectation && journal.Sequence(r.ExpectedSequence) != e.sequence {
		r.Result = request.Result{Err: &request.SequenceMismatchError{Expected: journal.Sequence(r.ExpectedSequence), Actual: e.sequence}}
		s.awaitCommit(r, e.last, true)
		return
	}
	if err := e.typ.refusesCommandName(r); err != nil {
		s.settle(r, request.Result{Err: err})
		return
	}
	if d.readOnly() && !e.typ.Transient {
		s.settle(r, request.Result{Err: request.ErrReadOnly})
		return
	}
	if d.opts.Settings.IsSuspended(e.id.Type) {
		s.settle(r, request.Result{Err: request.ErrSuspended})
		return
	}
	if !d.chargeRate(e, r) {
		return
	}
	d.handle(e, r, now, hash)
}

// chargeRate charges a command to its type's rate, or rejects it if the rate is
// exhausted. Deliveries were charged when they were admitted.
func (d *decider) chargeRate(e *entity, r *request.Request) bool {
	if !e.canAfford(r) {
		return false
	}
	wait := time.Duration(0)
	if timers.Of(r) != nil {
		wait = d.timers.Debt(e.id.Type)
	}
	if wait == 0 {
		wait = e.typ.Rate.Take(d.now.UnixNano())
	}
	if wait > 0 {
		e.rejectLimited(r, wait, request.LimitRate)
	}
	return wait == 0
}

// handle passes a command to the guest.
func (d *decider) handle(e *entity, r *request.Request, now int64, hash uint64) {
	v := d.exec.nextCall()
	v.kind, v.in, v.entity, v.handle, v.req, v.hash = callHandle, e.inst, e, uint64(e.handle), r, hash
	v.env = Env{Now: now, Seed: guestSeed(e.id, e.sequence, r.ID), Deadline: r.Deadline, Fuel: e.typ.CommandFuel, Counts: e.typ.Counts}
	if timers.Of(r) == nil { // a timer's payload is not checked, because an earlier module may have set it
		v.check = e.typ.commandCheck(r)
	}
	v.frames = commandFrame(v.frames[:0], e.typ, e.sequence, r, v.env)
	d.exec.makeCall(v)
}

// rejectPayload rejects a request whose payload failed its check.
func (d *decider) rejectPayload(e *entity, v *guestCall) {
	r := v.req
	switch payload, is := errors.AsType[*request.InvalidPayloadError](v.payloadErr); {
	case v.kind == callHandle && v.detached && d.isOutdated(e):
		r.Again = true // the schemas of the entity's new module decide
		d.exec.dispatch(e.shard, r)
	case is && r.Kind == request.Deliver:
		d.turnDown(e, r, v.env.Now, payload.Rejection())
	default:
		e.shard.settle(r, request.Result{Err: v.payloadErr})
	}
}

// acceptOutput turns the guest's output into a rejection or a record.
func (d *decider) acceptOutput(e *entity, r *request.Request, env Env, hash uint64) {
	s, out := e.shard, &d.output
	if !out.Rejected && !e.typ.Transient {
		err := d.checkTimerRoom(e)
		if err == nil {
			err = d.checkOpenRuns(e)
		}
		if why, ok := errors.AsType[*request.RejectedError](err); ok {
			out.Rejected, out.Reject = true, abi.Reject{Code: []byte(why.Code), Message: []byte(why.Message)}
		} else if err != nil {
			d.withdraw(e, r, err)
			return
		}
	}
	if out.Rejected {
		d.stats.Rejections++
		e.inst.Pool().Counter(d.types, e.typ).Rejection()
		why, barrier, evolved := &request.RejectedError{Code: string(out.Reject.Code), Message: string(out.Reject.Message)}, e.last, len(out.Events) > 0 || out.HasState
		switch {
		case r.Kind == request.Deliver:
			d.recordRejection(e, r, env, why)
		case timers.Of(r) != nil:
			d.endTimer(e, r, env, evolved)
		default:
			r.Result = request.Result{Err: why}
			if evolved {
				d.exec.reload(e) // the entity's state includes events that are not written
			}
			s.awaitCommit(r, barrier, true)
		}
		return
	}
	if e.typ.Transient {
		d.answerTransient(e, r, env, hash)
		return
	}
	if d.answerIdle(e, r) {
		return
	}
	if d.limitRun(e, env); !d.makeRoom(e, r) {
		return
	}
	ended, postponed := d.endOversizedRun(e, r)
	if postponed {
		return
	}
	if r.Kind == request.Deliver {
		d.answer(r.Delivery)
	}
	if err := d.checkMessageRoom(e, r); err != nil {
		d.withdraw(e, r, err)
		return
	}
	if e.typ.Workflow && !e.exists && len(out.Events) == 0 {
		out.Delete = true // an outcome for an earlier run must not create a run
	}
	if !d.append(e, r, env, hash) {
		return
	}
	if state := checkpointOf(out); state != nil && e.typ.Workflow && !out.Delete {
		d.exec.checkpoint(e, state)
	}
	switch {
	case out.Passivate && !e.typ.Singleton || out.Delete:
		d.exec.leave(e)
	case ended:
		d.exec.reload(e)
	}
}

// query runs a query on an entity in memory.
func (d *decider) query(e *entity, r *request.Request) {
	s := e.shard
	if err := e.typ.refusesQueryName(r); err != nil {
		s.settle(r, request.Result{Err: err})
		return
	}
	v := d.exec.nextCall()
	v.kind, v.in, v.entity, v.handle, v.req = callQuery, e.inst, e, uint64(e.handle), r
	v.env = Env{Now: s.logNow(), Seed: guestSeed(e.id, e.sequence, ""), Deadline: r.Deadline, Fuel: e.typ.QueryFuel}
	v.check = e.typ.queryCheck(r)
	v.frames = queryFrame(v.frames[:0], e.typ, e.sequence, r, v.env)
	d.exec.makeCall(v)
}

// finishQuery handles a guest's answer to a query. The result waits for the commit of
// everything that the query saw.
func (d *decider) finishQuery(e *entity, v *guestCall) {
	s, r, err := e.shard, v.req, v.err
	if err == nil {
		if err = abi.ParseOutput(&d.output, v.out, abi.QueryOnly, e.typ.limitsOr(&d.opts.Limits)); err != nil {
			d.stats.BadOutputs++
		}
	}
	if refused := d.refusesOutput(err); refused != nil {
		s.settle(r, request.Result{Err: refused})
		return
	}
	if err != nil {
		d.exec.answerFailure(e, r, err)
		return
	}
	d.stats.Queries++
	r.Result = request.Result{Payload: bytes.Clone(d.output.Reply), Sequence: e.sequence, Fuel: v.fuel}
	if d.output.Rejected {
		r.Result = request.Result{Err: &request.RejectedError{Code: string(d.output.Reject.Code), Message: string(d.output.Reject.Message)}}
	}
	s.awaitCommit(r, e.last, r.Kind == request.Query)
}

// finishCommand handles a guest's answer to a command.
func (d *decider) finishCommand(e *entity, v *guestCall) {
	err := v.err
	d.fuel = v.fuel
	if err == nil {
		if err = abi.ParseOutput(&d.output, v.out, e.typ.Mode(), e.typ.limitsOr(&d.opts.Limits)); err == nil && d.output.HasState && !recordFits(0, &d.output) {
			err = errRecordTooLarge
		}
		if err == nil {
			err = e.typ.CheckMessages(e.id, &d.output)
		}
		if err == nil {
			err = d.checkTokens()
		}
		if err == nil {
			err = d.timers.Schedule(&d.output, v.env.Now, timers.Of(v.req) != nil)
		}
		if err != nil {
			d.stats.BadOutputs++
		}
	}
	refused := d.refusesOutput(err)
	if (err == nil || refused != nil) && d.endFailed(e, v.req, err) {
		return
	}
	if err != nil && refused == nil {
		d.exec.answerFailure(e, v.req, err)
		return
	}
	if v.detached && d.isOutdated(e) {
		d.exec.reload(e)
		v.req.Again = true
		d.exec.dispatch(e.shard, v.req)
		return
	}
	if refused != nil {
		d.rejectOutput(e, v, refused, errors.Is(err, errUnlistedSend))
		return
	}
	d.acceptOutput(e, v.req, v.env, v.hash)
}

// refusesOutput returns the error for callers if an output is well formed but
// cannot be stored: it exceeds a limit, has an invalid value, or sends to a
// type that the manifest does not name. The caller's input is often the cause,
// so this does not count as a fault of the entity. For other errors it returns
// nil.
func (d *decider) refusesOutput(err error) error {
	var sentinel error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, abi.ErrOverLimit), errors.Is(err, errRecordTooLarge):
		sentinel = request.ErrOutputLimit
	case errors.Is(err, abi.ErrInvalidValue), errors.Is(err, timers.ErrSchedule), errors.Is(err, errUnlistedSend):
		sentinel = request.ErrOutputValue
	case errors.Is(err, errTokensTooEarly):
		sentinel = request.ErrOutputValue
	default:
		return nil
	}
	text := err.Error()
	if frame, is := errors.AsType[*abi.FrameError](err); is {
		if text = frame.Reason; frame.Limit > 0 {
			text = fmt.Sprintf("%s: %d, limit %d", frame.Reason, frame.Got, frame.Limit)
		}
	}
	if d.opts.ClusterVersion() < sharding.VersionOutputLimits {
		return &request.GuestFaultError{Message: text}
	}
	return fmt.Errorf("%w: %s", sentinel, text)
}

// rejectOutput ends a request whose output cannot be stored, as if the guest
// had rejected it, and discards the entity's evolved state. A timer
// that fires once is kept and tried again if the manifest does not allow the
// command's send, because a later module may allow it; so is a timer whose
// command the module does not have.
func (d *decider) rejectOutput(e *entity, v *guestCall, refused error, unlisted bool) {
	r := v.req
	d.stats.Rejections++
	e.inst.Pool().Counter(d.types, e.typ).Rejection()
	d.output.Reset()
	d.output.HasState = true // the output has no state, but HasState makes the executor discard the guest's state
	switch {
	case r.Kind == request.Deliver:
		code := request.CodeOutOfRange
		if errors.Is(refused, request.ErrOutputValue) {
			code = request.CodeInvalidOutput
		}
		d.recordRejection(e, r, v.env, &request.RejectedError{Code: code, Message: refused.Error()})
	case timers.Of(r) != nil && timers.Of(r).Timer.Schedule == nil && unlisted:
		d.opts.Logger.Warn("timer waits: its command sends to a type that the manifest does not list", "entity_type", e.id.Type, "entity_id", e.id.ID, "shard_id", e.shard.id,
			"command", r.Name, "error", refused)
		e.shard.settle(r, request.Result{Err: refused})
		d.exec.reload(e)
	case timers.Of(r) != nil:
		d.opts.Logger.Warn("timer dropped: its command's output cannot be stored", "entity_type", e.id.Type, "entity_id", e.id.ID, "shard_id", e.shard.id,
			"command", r.Name, "error", refused)
		d.endTimer(e, r, v.env, true)
	default:
		barrier := e.last
		r.Result = request.Result{Err: refused}
		d.exec.reload(e)
		e.shard.awaitCommit(r, barrier, true)
	}
}

// canAfford reports whether the type's limits allow the request's command. If
// not, it answers the request.
func (e *entity) canAfford(r *request.Request) bool {
	wait, limit := e.typ.budgetWait(e.shard.now.UnixNano())
	if wait > 0 {
		e.rejectLimited(r, wait, limit)
	}
	return wait == 0
}

// rejectLimited answers a request that exceeds a limit of its type.
func (e *entity) rejectLimited(r *request.Request, wait time.Duration, limit string) {
	e.shard.stats.RateLimited++
	e.shard.settle(r, request.Result{Err: &request.RateLimitedError{RetryAfter: wait, Limit: limit}})
}
