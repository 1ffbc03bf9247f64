package entity

import (
	"errors"
	"time"

	"github.com/hostd/hostd/host/request"
)

// isCutOff reports whether a call was ended for a reason that is not the
// guest's fault.
func isCutOff(err error) bool {
	return errors.Is(err, request.ErrDeadline) || errors.Is(err, request.ErrStopped)
}

// faultsFor is how long the faults of an entity are remembered after its last
// fault or the end of its quarantine.
const faultsFor = time.Hour

// faultState is the fault history of an entity. The zero value is an empty
// history.
type faultState struct {
	consecutive      int32
	revision         uint64 // revision of the activation under which the faults in consecutive occurred
	last             string
	quarantinedUntil time.Time
	until            int64 // when the faults are forgotten, unix nanoseconds
}

// quarantineRules determine when an entity is quarantined.
type quarantineRules struct {
	After int           // consecutive faults
	For   time.Duration // first quarantine time; it doubles with each further fault
}

// mostDoublings bounds how often the quarantine time doubles.
const mostDoublings = 10

// Add counts a fault under a revision of the type's activation, and reports
// whether the entity is now quarantined. Each revision has its own count,
// because another module or other limits may fix the fault.
func (f *faultState) Add(rules quarantineRules, revision uint64, now time.Time) (quarantined bool) {
	if f.revision != revision {
		f.consecutive, f.quarantinedUntil, f.revision = 0, time.Time{}, revision
	}
	f.consecutive++
	f.until = now.Add(faultsFor).UnixNano()
	over := int(f.consecutive) - rules.After
	if over < 0 {
		return false
	}
	f.quarantinedUntil = now.Add(rules.For << min(over, mostDoublings))
	f.until = f.quarantinedUntil.Add(faultsFor).UnixNano()
	return true
}

// Note remembers the last error, whether or not it is a fault, with the
// guest's output before the error.
func (f *faultState) Note(err error) { f.last = text(err) }

// IsUnder reports whether the faults were counted under this revision of the
// type's activation.
func (f *faultState) IsUnder(revision uint64) bool { return f.revision == revision }

// Last is the text of the last error, with the guest's output.
func (f *faultState) Last() string { return f.last }

// Consecutive is the number of faults since the last success.
func (f *faultState) Consecutive() int { return int(f.consecutive) }

// ResetCount resets the count.
func (f *faultState) ResetCount() { f.consecutive = 0 }

// QuarantinedUntil is the end of the quarantine, if there is one.
func (f *faultState) QuarantinedUntil() time.Time { return f.quarantinedUntil }

// IsQuarantined reports whether the entity is quarantined.
func (f *faultState) IsQuarantined(now time.Time) bool { return f.quarantinedUntil.After(now) }
