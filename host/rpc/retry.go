package rpc

import (
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/entity"
)

// maxAge bounds how old an attempt is taken for.
const maxAge = 366 * 24 * time.Hour

// checkRetry refuses an age that names no attempt.
func checkRetry(commandID string, firstAgeMs uint64) error {
	if firstAgeMs > 0 && commandID == "" {
		return &argumentError{"first_attempt_age_ms is of an attempt with the same command_id, which is not given"}
	}
	return nil
}

// triedBefore notes how long before r.First, when the command came here, it was
// first tried; 0 where it was not.
func triedBefore(r *entity.Request, firstAgeMs uint64) {
	if firstAgeMs == 0 {
		return
	}
	r.Again = true
	r.First = r.First.Add(-time.Duration(min(firstAgeMs, uint64(maxAge/time.Millisecond))) * time.Millisecond)
}

// attempts is when a person's request was first tried, with an effect that is
// not known; zero where it was not.
type attempts struct{ first time.Time }

func attemptsSince(firstAgeMs uint64) (a attempts) {
	if firstAgeMs > 0 {
		a.first = time.Now().Add(-time.Duration(min(firstAgeMs, uint64(maxAge/time.Millisecond))) * time.Millisecond)
	}
	return a
}

// ageMs is how long ago the first was, as another node is told it.
func (a *attempts) ageMs() uint64 {
	if a.first.IsZero() {
		return 0
	}
	return uint64(max(time.Since(a.first)+time.Millisecond-1, time.Millisecond) / time.Millisecond)
}

// ended notes the outcome of an attempt at another node: one without an answer
// may have had an effect.
func (a *attempts) ended(began time.Time, err error) {
	if err != nil && a.first.IsZero() && !connect.IsWireError(err) {
		a.first = began
	}
}
