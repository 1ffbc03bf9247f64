package timers

import (
	"time"
)

// The rate of timers is that of commands which leave little. A type whose
// timers leave or compute much more at a firing pays with time: its timers wait
// until the executor would have fired as many small ones, of the share that one
// type has.

const (
	// smallBytes and smallFuel are what a timer of the rate may take up.
	smallBytes = 2 << 10
	smallFuel  = 4_000_000
	// typeShare is the part of the executor's rate that a type pays at: one of this.
	typeShare = 4
	// debtSlack is how much a type may owe before its timers wait, debtMost the
	// most that it can.
	debtSlack = 50 * time.Millisecond
	debtMost  = time.Minute
)

// debts is until when types have used up their share, unix nanoseconds.
type debts map[string]int64

// Owe counts what the command of a timer took beyond what one may.
func (q *Timers) Owe(entityType string, bytes int, fuel uint64) {
	extra := max(float64(bytes)/smallBytes, float64(fuel)/smallFuel) - 1
	if extra <= 0 {
		return
	}
	if q.debts == nil {
		q.debts = make(debts)
	}
	now := q.lane.Now().UnixNano()
	owes := int64(extra * typeShare * float64(time.Second) / float64(q.opts.Rate))
	q.debts[entityType] = min(max(q.debts[entityType], now)+owes, now+int64(debtMost))
}

// Debt is for how long a timer of the type has to wait for what others of it
// have taken.
func (q *Timers) Debt(entityType string) time.Duration {
	if q.debts == nil {
		return 0
	}
	until, owes := q.debts[entityType]
	wait := time.Duration(until - q.lane.Now().UnixNano())
	if owes && wait <= 0 {
		delete(q.debts, entityType)
	}
	if wait <= debtSlack {
		return 0
	}
	return wait
}
