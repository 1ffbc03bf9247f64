package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// SentBack reports that a router at another node sends a request with this
// outcome again.
func SentBack(err error) bool {
	return comesBack(&request.Request{Kind: request.Query, Result: request.Result{Err: err}})
}

// comesBack reports that a failed request may be sent again: it did not run,
// or it may have, and then its command id makes the repetition harmless.
func comesBack(q *request.Request) bool {
	err := q.Result.Err
	switch request.RetryOf(err) {
	case request.ResendSameID:
		q.Route.Unknown = q.Route.Unknown || q.Kind.HasID()
		q.Again = q.Again || q.Kind.HasID()
		q.Route.UnderWay = q.Route.UnderWay || q.Kind.HasID() && errors.Is(err, request.ErrMayComeThrough)
		return true
	case request.Resend:
		return true
	case request.ResendElsewhere:
		// A node that stops hands its shards over. This one will not come to see it.
		return !q.Route.Self
	}
	return false
}

// isUnknown reports that the last attempt may have taken effect.
func isUnknown(q *request.Request) bool { return errors.Is(q.Result.Err, request.ErrOutcomeUnknown) }

// settled reports that an outcome holds for all attempts of a command: its
// entity had been asked for the command id before it was reached. Of a refusal
// nothing is written, so it says nothing of an attempt that may come through
// later and meet another state; a sequence that did not match never will.
func settled(err error, underWay bool) bool {
	switch request.RetryOf(err) {
	case request.Final:
		return true
	case request.FinalAlone:
		return !underWay
	}
	return err == nil
}

// byLeader reports that only a node which leads the shard gives this outcome.
func byLeader(err error) bool {
	r := request.RetryOf(err)
	return r != request.ToldByAny && r != request.ResendElsewhere
}

// hintOf returns the leader that an error names.
func hintOf(err error) sharding.NodeID {
	var notLeader *sharding.NotLeaderError
	if errors.As(err, &notLeader) {
		return notLeader.Leader
	}
	return ""
}

// stillUnknown is the outcome of a command that an earlier attempt may have
// carried out, when the last one ended with err. The cause is told as text: its
// own meaning would be a definite one.
func stillUnknown(err error) error {
	if errors.Is(err, request.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w; the last attempt: %v", request.ErrOutcomeUnknown, err)
}

// fail sets the result of a request that is not sent again.
func fail(q *request.Request, err error) {
	if q.Route.Unknown {
		err = stillUnknown(err)
	}
	q.Result = request.Result{Err: err}
}

// late reports that a request goes nowhere any more: its deadline is over, or
// the process stood still since it arrived. Then its caller may have had it
// done elsewhere, so long ago that the command id is forgotten.
func (f *shardRoute) late(q *request.Request, now time.Time) bool {
	return q.Route.Epoch != f.limits.epoch.Load() || !q.Deadline.IsZero() && q.Deadline.Before(now)
}

// sooner returns the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
