package entity

import (
	"errors"
	"time"

	"github.com/hostd/hostd/host/request"
)

// isCutOff reports that a call was ended for a reason that is not the guest's.
func isCutOff(err error) bool {
	return errors.Is(err, request.ErrDeadline) || errors.Is(err, request.ErrStopped)
}

// faultsFor is how long the faults of an entity are remembered after the last
// of them, and after the time for which it was parked.
const faultsFor = time.Hour

// faultState is what is remembered of an entity's. The zero value is nothing.
type faultState struct {
	inRow    int32
	revision uint64 // of the binding that the row is of
	last     string
	parkedTo time.Time
	until    int64 // when they are forgotten, unix nanoseconds
}

// quarantineRules say when an entity is parked.
type quarantineRules struct {
	After int           // faults in a row
	For   time.Duration // doubled with each that follows
}

// mostDoublings bounds how often the time for which an entity is parked
// doubles.
const mostDoublings = 10

// Add counts a fault under a revision of the type's binding, and reports that
// the entity is parked for it. Each revision has a row of its own: another
// module or other limits may mend what failed.
func (f *faultState) Add(rules quarantineRules, revision uint64, now time.Time) (parked bool) {
	if f.revision != revision {
		f.inRow, f.parkedTo, f.revision = 0, time.Time{}, revision
	}
	f.inRow++
	f.until = now.Add(faultsFor).UnixNano()
	over := int(f.inRow) - rules.After
	if over < 0 {
		return false
	}
	f.parkedTo = now.Add(rules.For << min(over, mostDoublings))
	f.until = f.parkedTo.Add(faultsFor).UnixNano()
	return true
}

// Note keeps what went wrong last, a fault or not, with what the guest wrote
// before.
func (f *faultState) Note(err error) { f.last = text(err) }

// Under reports that the row is of a revision of the type's binding.
func (f *faultState) Under(revision uint64) bool { return f.revision == revision }

// Last is what went wrong last.
func (f *faultState) Last() string { return f.last }

// InRow is how many faults there were since the last success.
func (f *faultState) InRow() int { return int(f.inRow) }

// Succeeded ends the row.
func (f *faultState) Succeeded() { f.inRow = 0 }

// ParkedUntil is until when the entity is parked, if it is.
func (f *faultState) ParkedUntil() time.Time { return f.parkedTo }

// Parked reports that the entity is parked.
func (f *faultState) Parked(now time.Time) bool { return f.parkedTo.After(now) }
