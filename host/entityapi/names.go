package entityapi

import (
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/host/former"
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

// retryable is a request that may be a retry.
type retryable interface {
	proto.Message
	GetFirstAttemptAge() *durationpb.Duration
}

// firstAge returns the time since the first attempt of a request, and 0 if there
// was none. The previous release sends it in milliseconds, in the former field.
func firstAge(m retryable, formerField protowire.Number) time.Duration {
	if age := m.GetFirstAttemptAge(); age != nil {
		return age.AsDuration()
	}
	ms := former.Number(m, formerField)
	return time.Duration(min(ms, uint64(maxAge/time.Millisecond))) * time.Millisecond
}

// checkRetry rejects the age of a first attempt if it is negative, or if there
// is no command id.
func checkRetry(commandID string, age time.Duration) error {
	if age < 0 {
		return status.Argument("first_attempt_age must not be negative")
	}
	if age > 0 && commandID == "" {
		return status.Argument("first_attempt_age needs the command_id of the first attempt")
	}
	return nil
}

// setFirstAttempt moves r.First, which is the time when the command arrived on
// this node, back by age, but by at most maxAge, to the time of its first
// attempt. If age is 0, there was no earlier attempt.
func setFirstAttempt(r *request.Request, age time.Duration) {
	if age == 0 {
		return
	}
	r.Again = true
	r.First = r.First.Add(-limitAge(age))
}

// limitAge returns the age of an earlier attempt, of at most maxAge.
func limitAge(age time.Duration) time.Duration { return min(age, maxAge) }
