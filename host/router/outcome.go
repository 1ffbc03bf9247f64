package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// SentBack reports whether a router on another node would resend a request that
// failed with err.
func SentBack(err error) bool {
	return comesBack(&request.Request{Kind: request.Query, Result: request.Result{Err: err}})
}

// comesBack reports whether a failed request may be resent: either it did not
// run, or it may have run and its command id makes the repetition idempotent.
// It records in q.Route what the failure means for later outcomes.
func comesBack(q *request.Request) bool {
	err := q.Result.Err
	switch request.RetryOf(err) {
	case request.ResendSameID:
		q.Route.Unknown = q.Route.Unknown || q.Kind.HasID()
		q.Again = q.Again || q.Kind.HasID()
		q.Route.UnderWay = q.Route.UnderWay || q.Kind.HasID() && errors.Is(err, request.ErrMayStillApply)
		return true
	case request.Resend:
		return true
	case request.ResendElsewhere:
		// A stopping node transfers its leaderships, so another node can serve
		// the request. If this node itself stops, it will not live to
		// see that.
		return !q.Route.Self
	}
	return false
}

// isUnknown reports whether the last attempt may have taken effect.
func isUnknown(q *request.Request) bool { return errors.Is(q.Result.Err, request.ErrOutcomeUnknown) }

// isFinal reports whether the outcome of the last attempt holds for all
// attempts of a command. It does if the entity checked the command id before it
// reached that outcome. A rejection is not recorded in the idempotency window,
// so it says nothing about an earlier attempt that is still under way and may
// run against a different state. A failed sequence check is final, because it
// can never match again.
func isFinal(err error, underWay bool) bool {
	switch request.RetryOf(err) {
	case request.Final:
		return true
	case request.FinalAlone:
		return !underWay
	}
	return err == nil
}

// byLeader reports whether only a node that leads the shard returns this
// outcome.
func byLeader(err error) bool {
	r := request.RetryOf(err)
	return r != request.ReportErrorOfAny && r != request.ResendElsewhere
}

// hintOf returns the leader that an error names, or "".
func hintOf(err error) sharding.NodeID {
	var notLeader *sharding.NotLeaderError
	if errors.As(err, &notLeader) {
		return notLeader.Leader
	}
	return ""
}

// stillUnknown returns the error for a command that an earlier attempt may have
// run, if the last attempt ended with err. It includes err only as text,
// because callers who unwrap it would treat the outcome as definite.
func stillUnknown(err error) error {
	if errors.Is(err, request.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w; the last attempt: %v", request.ErrOutcomeUnknown, err)
}

// fail sets the result of a request that will not be resent.
func fail(q *request.Request, err error) {
	if q.Route.Unknown {
		err = stillUnknown(err)
	}
	q.Result = request.Result{Err: err}
}

// late reports whether a request must not be sent any more, because its
// deadline has passed or because the process was paused since the request
// arrived. After a pause, the caller may have retried the command elsewhere so
// long ago that its id has left the idempotency window.
func (f *shardRoute) late(q *request.Request, now time.Time) bool {
	return q.Route.Epoch != f.limits.epoch.Load() || !q.Deadline.IsZero() && q.Deadline.Before(now)
}

// sooner returns the earlier of two times. A zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
