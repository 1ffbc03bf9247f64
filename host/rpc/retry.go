package rpc

import (
	"time"

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
