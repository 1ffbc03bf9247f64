package entityapi

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// maxNameBytes limits the name of a command or a query.
const maxNameBytes = 255

// checkName validates the name of a command or a query.
func checkName(what, name string) error {
	if name == "" {
		return status.Argument("the " + what + " is empty")
	}
	return checkText(what, name, maxNameBytes)
}

// checkCommandID validates a caller's command id.
func checkCommandID(id string) error {
	return checkText("command id", id, journal.MaxCommandIDBytes)
}

func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return status.Argument(fmt.Sprintf("the %s has %d bytes, at most %d are allowed", what, len(s), limit))
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf {
			return checkRunes(what, s)
		} else if c < 0x20 || c == 0x7f {
			return status.Argument(fmt.Sprintf("the %s has a control character at byte %d", what, i))
		}
	}
	return nil
}

func checkRunes(what, s string) error {
	if !utf8.ValidString(s) {
		return status.Argument("the " + what + " is not UTF-8")
	}
	for i, r := range s {
		if !sharding.Printable(r) {
			return status.Argument(fmt.Sprintf("the %s has an unprintable character at byte %d", what, i))
		}
	}
	return nil
}

// maxAge limits the assumed age of an earlier attempt.
const maxAge = 366 * 24 * time.Hour

// checkRetry rejects the age of a first attempt if there is no command id.
func checkRetry(commandID string, firstAgeMs uint64) error {
	if firstAgeMs > 0 && commandID == "" {
		return status.Argument("first_attempt_age_ms needs the command_id of the first attempt")
	}
	return nil
}

// setFirstAttempt moves r.First, which is the time when the command arrived on
// this node, back by firstAgeMs milliseconds to the time of its first attempt.
// If firstAgeMs is 0, there was no earlier attempt.
func setFirstAttempt(r *request.Request, firstAgeMs uint64) {
	if firstAgeMs == 0 {
		return
	}
	r.Again = true
	r.First = r.First.Add(-ageOf(firstAgeMs))
}

// ageOf converts an age in milliseconds to a duration, of at most maxAge.
func ageOf(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(maxAge/time.Millisecond))) * time.Millisecond
}
