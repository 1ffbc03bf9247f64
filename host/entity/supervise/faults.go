package supervise

import "time"

// faultsFor is how long the faults of an entity are remembered after the last
// of them, and after the time for which it was parked.
const faultsFor = time.Hour

// Faults is what is remembered of an entity's. The zero value is nothing.
type Faults struct {
	inRow    int32
	last     string
	parkedTo time.Time
	until    int64 // when they are forgotten, unix nanoseconds
}

// Rules say when an entity is parked.
type Rules struct {
	After int           // faults in a row
	For   time.Duration // doubled with each that follows
}

// mostDoublings bounds how often the time for which an entity is parked
// doubles.
const mostDoublings = 10

// Add counts a fault, and reports that the entity is parked for it.
func (f *Faults) Add(rules Rules, now time.Time) (parked bool) {
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
func (f *Faults) Note(err error) { f.last = text(err) }

// Last is what went wrong last.
func (f *Faults) Last() string { return f.last }

// InRow is how many faults there were since the last success.
func (f *Faults) InRow() int { return int(f.inRow) }

// Succeeded ends the row.
func (f *Faults) Succeeded() { f.inRow = 0 }

// ParkedUntil is until when the entity is parked, if it is.
func (f *Faults) ParkedUntil() time.Time { return f.parkedTo }

// Parked reports that the entity is parked.
func (f *Faults) Parked(now time.Time) bool { return f.parkedTo.After(now) }
