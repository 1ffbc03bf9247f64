package command

import (
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// maxAge bounds how old an attempt is taken for.
const maxAge = 366 * 24 * time.Hour

// CheckRetry refuses an age that names no attempt.
func CheckRetry(commandID string, firstAgeMs uint64) error {
	if firstAgeMs > 0 && commandID == "" {
		return status.Argument("first_attempt_age_ms is of an attempt with the same command_id, which is not given")
	}
	return nil
}

// TriedBefore notes how long before r.First, when the command came here, it was
// first tried; 0 where it was not.
func TriedBefore(r *request.Request, firstAgeMs uint64) {
	if firstAgeMs == 0 {
		return
	}
	r.Again = true
	r.First = r.First.Add(-Age(firstAgeMs))
}

// Age is how long ago something of an age was.
func Age(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(maxAge/time.Millisecond))) * time.Millisecond
}
