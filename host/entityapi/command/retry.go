package command

import (
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// maxAge limits the assumed age of an earlier attempt.
const maxAge = 366 * 24 * time.Hour

// CheckRetry rejects the age of a first attempt if there is no command id.
func CheckRetry(commandID string, firstAgeMs uint64) error {
	if firstAgeMs > 0 && commandID == "" {
		return status.Argument("first_attempt_age_ms needs the command_id of the first attempt")
	}
	return nil
}

// SetFirstAttempt moves r.First, which is the time when the command arrived on
// this node, back by firstAgeMs milliseconds to the time of its first attempt.
// If firstAgeMs is 0, there was no earlier attempt.
func SetFirstAttempt(r *request.Request, firstAgeMs uint64) {
	if firstAgeMs == 0 {
		return
	}
	r.Again = true
	r.First = r.First.Add(-Age(firstAgeMs))
}

// Age converts an age in milliseconds to a duration, of at most maxAge.
func Age(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(maxAge/time.Millisecond))) * time.Millisecond
}
