package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/sharding"
)

// SentBack reports that a router at another node sends a request with this
// outcome again.
func SentBack(err error) bool {
	return comesBack(&entity.Request{Kind: entity.Query, Result: entity.Result{Err: err}})
}

// comesBack reports that a failed request may be sent again: it did not run,
// or it may have, and then its command id makes the repetition harmless.
func comesBack(q *entity.Request) bool {
	err := q.Result.Err
	var notLeader *sharding.NotLeaderError
	switch {
	case errors.Is(err, entity.ErrOutcomeUnknown):
		q.Route.Unknown = q.Route.Unknown || q.Kind == entity.Command
		q.Again = q.Again || q.Kind == entity.Command
		q.Route.UnderWay = q.Route.UnderWay || q.Kind == entity.Command && errors.Is(err, ErrMayComeThrough)
		return true
	case errors.Is(err, entity.ErrNotApplied), errors.Is(err, entity.ErrNotServed), errors.Is(err, ErrUnreachable), errors.As(err, &notLeader):
		return true
	}
	// A node that stops hands its shards over. This one will not come to see it.
	return errors.Is(err, entity.ErrStopped) && !q.Route.Self
}

// isUnknown reports that the last attempt may have taken effect.
func isUnknown(q *entity.Request) bool { return errors.Is(q.Result.Err, entity.ErrOutcomeUnknown) }

// settled reports that an outcome holds for all attempts of a command: its
// entity had been asked for the command id before it was reached. Of a refusal
// nothing is written, so it says nothing of an attempt that may come through
// later and meet another state; a sequence that did not match never will.
func settled(err error, underWay bool) bool {
	if err == nil {
		return true
	}
	var mismatch *entity.SequenceMismatchError
	if errors.Is(err, entity.ErrCommandIDReused) || errors.Is(err, entity.ErrForgotten) || errors.As(err, &mismatch) {
		return true
	}
	if underWay {
		return false
	}
	for _, s := range [...]error{entity.ErrUnknownCommand, entity.ErrReadOnly, entity.ErrUnsupported} {
		if errors.Is(err, s) {
			return true
		}
	}
	var rejected *entity.RejectedError
	var fault *entity.GuestFaultError
	return errors.As(err, &rejected) || errors.As(err, &fault)
}

// byLeader reports that only a node which leads the shard gives this outcome.
func byLeader(err error) bool {
	return !errors.Is(err, entity.ErrBusy) && !errors.Is(err, entity.ErrDeadline) && !errors.Is(err, entity.ErrStopped)
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
	if errors.Is(err, entity.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w; the last attempt: %v", entity.ErrOutcomeUnknown, err)
}

// fail sets the result of a request that is not sent again.
func fail(q *entity.Request, err error) {
	if q.Route.Unknown {
		err = stillUnknown(err)
	}
	q.Result = entity.Result{Err: err}
}

// late reports that a request goes nowhere any more: its deadline is over, or
// the process stood still since it arrived. Then its caller may have had it done
// elsewhere, so long ago that the command id is forgotten.
func (f *flow) late(q *entity.Request, now time.Time) bool {
	return q.Route.Epoch != f.limits.epoch.Load() || !q.Deadline.IsZero() && q.Deadline.Before(now)
}

// sooner returns the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
