package entity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/host/request"
)

// callKind is the purpose of a guest call.
type callKind uint8

const (
	callHandle callKind = iota
	callQuery
	callLoad // opens the instance if it is new, loads the entity if it is new, and applies a chunk
	callSnapshot
	callState // takes a state like callSnapshot, for the state check
)

// guestCall is one guest call. Exec may run long, and may then be on a
// goroutine that no longer owns the executor, so it touches only the call and
// the guest.
type guestCall struct {
	kind   callKind
	in     *instance
	guest  Guest // the instance's guest; nil if the call must open one
	entity *entity
	req    *request.Request // request of callHandle or callQuery
	env    Env
	check  payloadCheck // checks the request's payload before the guest gets it
	began  time.Time
	ended  time.Time
	hash   uint64 // hash of the command's name and payload
	frames []byte
	handle uint64

	load  *load // for callLoad, with the next chunk and step of the load
	chunk *historyChunk
	step  historyStep

	detached bool // the executor has continued without the call

	clock       func() time.Time
	mayContinue func() bool // method value of continueCheck, allocated once
	steps       int         // steps of the payload check
	payloadErr  error       // why check rejected the payload

	fuel uint64 // fuel spent by callHandle or callQuery
	out  []byte // valid until the guest's next call
	err  error
}

// SetTimes sets when the call began and ended.
func (v *guestCall) SetTimes(began, ended time.Time) { v.began, v.ended = began, ended }

// OpensInstance reports whether the call opens an instance, which is slow.
func (v *guestCall) OpensInstance() bool { return v.guest == nil }

// Exec calls the guest, and opens it first if the instance is new. Once the
// guest has spent much of its fuel, Exec preempts the executor, which then
// continues without the call. long may be nil.
func (v *guestCall) Exec(long preempter) {
	v.env.Long = long
	if v.guest == nil {
		if v.guest, v.err = v.in.Pool().Type().Instantiate(context.Background()); v.err != nil {
			v.guest = nil
			return
		}
	}
	if v.steps, v.payloadErr = v.check.Do(v.mayContinue); v.payloadErr != nil {
		return
	}
	switch v.kind {
	case callHandle:
		v.out, v.err = v.guest.Handle(v.handle, v.frames, v.env)
		v.fuel = uint64(max(0, v.guest.Fuel()))
	case callQuery:
		v.out, v.err = v.guest.Query(v.handle, v.frames, v.env)
		v.fuel = uint64(max(0, v.guest.Fuel()))
	case callSnapshot, callState:
		v.out, v.err = v.guest.Snapshot(v.handle)
	case callLoad:
		v.err = v.step.Do(v.guest, v.handle)
	}
}

// newCall returns an empty call.
func newCall(clock func() time.Time) *guestCall {
	v := &guestCall{clock: clock}
	v.mayContinue = v.continueCheck
	return v
}

// continueCheck is called during a payload check. It detaches the executor from a
// check that lasts longer than a quarter of a millisecond, and ends the check
// at the deadline of its request.
func (v *guestCall) continueCheck() bool {
	if v.env.Long != nil {
		v.env.Long.Preempt()
	}
	return v.env.Deadline.IsZero() || v.clock().Before(v.env.Deadline)
}

// makeCall makes a guest call and handles its outcome, unless the executor continues
// without it.
func (c *core) makeCall(v *guestCall) {
	v.guest = v.in.Begin(v.entity.id)
	if c.runner.Call(v) {
		c.finishCall(v)
	} else {
		c.detachCall()
	}
}

// detachCall continues without the running call. Its outcome arrives as an
// event.
func (c *core) detachCall() {
	c.detachedCalls[c.call] = struct{}{}
	c.call = newCall(c.opts.Now)
}

// finishDetachedCall handles the outcome of a detached call.
func (c *core) finishDetachedCall(v *guestCall) {
	e := v.entity
	v.detached = true
	delete(c.detachedCalls, v)
	c.finishCall(v)
	c.enqueue(e)
}

// finishCall handles the outcome of a call. In the meantime the entity may have
// left the instance, or the instance may have been closed.
func (c *core) finishCall(v *guestCall) {
	in, e := v.in, v.entity
	in.End(v.guest)
	stays := !in.IsClosed() && e.inst == in && uint64(e.handle) == v.handle
	if !stays && v.err != nil {
		c.residents.closeInstance(in)
	}
	switch {
	case v.kind == callLoad:
		if stays && !in.HasGuest() {
			c.failOpen(e, v.err)
		} else if stays {
			c.chunkApplied(e, v)
		}
	case v.kind == callSnapshot:
		if stays {
			c.snapshotTaken(e, v)
		}
	case v.kind == callState:
		if stays {
			c.offerState(e, v)
		}
	case v.req == nil: // the request was answered when the executor was closed
	case !stays:
		c.requeue(v)
	case v.payloadErr != nil:
		c.chargeCheck(e, v)
		c.decider.rejectPayload(e, v)
	case v.kind == callHandle:
		c.chargeCheck(e, v)
		c.charge(e, v)
		c.decider.finishCommand(e, v)
	default:
		v.req.Exec.RecordCall(nil, &in.Pool().Type().Digest, v.began, v.ended)
		c.decider.finishQuery(e, v)
	}
	v.guest, v.req, v.load, v.chunk, v.out, v.err = nil, nil, nil, nil, nil, nil
	v.check, v.steps, v.payloadErr = payloadCheck{}, 0, nil
	v.step.Clear()
	if in.IsClosed() {
		c.residents.shut(in)
		return
	}
	if err := in.DropLeaving(); err != nil {
		c.residents.closeInstance(in)
		return
	}
	for _, b := range in.Unblock() {
		b.blocked = false
		c.enqueue(b)
	}
}

// requeue decides a request again if its entity left the instance during the
// guest call. If this node no longer leads the shard, it answers the request.
func (c *core) requeue(v *guestCall) {
	s := v.entity.shard
	if s.state != leading || !s.entities.Has(v.entity) {
		s.settle(v.req, request.Result{Err: notLeader(s)})
		return
	}
	v.req.Again = true // other requests were served during the call
	c.dispatch(s, v.req)
}

// chargeCheck charges the cost of a payload check to the fuel budget of the
// type. Records and replies show only the fuel that the guest has spent.
func (c *core) chargeCheck(e *entity, v *guestCall) {
	fuel := uint64(v.steps) * checkStepFuel
	if v.kind != callHandle || fuel == 0 {
		return
	}
	e.typ.FuelBudget.spend(c.now.UnixNano(), fuel)
	c.heat.Add(c.now.UnixNano(), e.key, e.id, e.shard.id, fuel)
	if v.req.Kind == request.Deliver {
		c.intake.Charge(e.id.Type, int64(fuel))
	}
}

// charge charges and counts the cost of a command.
func (c *core) charge(e *entity, v *guestCall) {
	now := c.now.UnixNano()
	took := e.inst.Pool().Counter(c.residents.types, e.typ).Command(v.fuel)
	v.req.Exec.RecordCall(took, &v.in.Pool().Type().Digest, v.began, v.ended)
	c.heat.Add(now, e.key, e.id, e.shard.id, v.fuel)
	e.typ.FuelBudget.spend(now, v.fuel)
}

// answerFailure answers a request whose guest call failed, for any reason.
func (c *core) answerFailure(e *entity, r *request.Request, err error) {
	if !isCutOff(err) {
		c.fault(e, r, err)
		return
	}
	e.shard.settle(r, request.Result{Err: err})
	c.residents.closeInstance(e.inst)
}

// fault answers a request whose guest call failed by the guest's fault. The
// instance can no longer be trusted, so it is closed, and its entities are
// loaded again on their next request. An entity that faults again gets an
// instance of its own; if it continues to fault, it is quarantined, each time
// for twice as long.
func (c *core) fault(e *entity, r *request.Request, err error) {
	c.recordFault(e, r.Trace, err)
	e.shard.settle(r, request.Result{Err: e.typ.faultOf(r, &request.GuestFaultError{Message: err.Error()})})
	c.residents.closeInstance(e.inst)
}

// faultOf returns the error that a request gets for a fault of its entity. A
// message to a run is not rejected after a few faults: it waits, as for a
// quarantined entity, until the type gets a module that can continue the run.
func (t *Type) faultOf(r *request.Request, err error) error {
	var fault *request.GuestFaultError
	if t.Workflow && r.Kind == request.Deliver && errors.As(err, &fault) {
		return fmt.Errorf("%w: %s", request.ErrQuarantined, fault.Message)
	}
	return err
}

func (c *core) recordFault(e *entity, in *request.Trace, err error) {
	c.stats.Faults++
	c.residents.types.Of(e.id.Type).Fault()
	e.noteError(err)
	e.typ.Counts.Fault()
	if e.extra.faults.Add(quarantineRules{After: c.opts.QuarantineAfterFaults, For: c.opts.QuarantineFor}, e.typ.Revision, c.now) {
		e.shard.quarantine.Add(e, c.now)
		c.stats.Quarantines++
	}
	c.opts.Logger.Warn("guest fault", faultAttributes(err, in.LogAttributes("entity_type", e.id.Type, "shard_id", e.shard.id, "faults", e.faults())...)...)
	c.faulted.Add(e, c.now)
}
