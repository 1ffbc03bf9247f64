package timers

import (
	"time"
)

// The rate of the timers assumes commands that cost little. If a timer's
// command writes or computes much more, its type owes time: timers of the
// type wait for as long as the executor would need, at the type's share of
// the rate, to fire cheap timers of the same total cost.

const (
	// smallBytes and smallFuel bound the cost of a timer's command for which
	// its type owes nothing.
	smallBytes = 2 << 10
	smallFuel  = 4_000_000
	// A type pays its debt at 1/typeShare of the executor's rate.
	typeShare = 4
	// debtSlack is the debt up to which a type's timers do not wait. debtMost
	// bounds the debt of a type.
	debtSlack = 50 * time.Millisecond
	debtMost  = time.Minute
)

// debts holds, by type, the time at which the type's debt is paid, in unix
// nanoseconds.
type debts map[string]int64

// Owe charges the type for the cost of a timer's command above the cost of a
// cheap command: bytes of its record and fuel of its guest call.
func (q *Timers) Owe(entityType string, bytes int, fuel uint64) {
	extra := max(float64(bytes)/smallBytes, float64(fuel)/smallFuel) - 1
	if extra <= 0 {
		return
	}
	if q.debts == nil {
		q.debts = make(debts)
	}
	now := q.exec.Now().UnixNano()
	owes := int64(extra * typeShare * float64(time.Second) / float64(q.opts.Rate))
	q.debts[entityType] = min(max(q.debts[entityType], now)+owes, now+int64(debtMost))
}

// Debt returns how long a timer of the type must wait because of the type's
// debt.
func (q *Timers) Debt(entityType string) time.Duration {
	if q.debts == nil {
		return 0
	}
	until, owes := q.debts[entityType]
	wait := time.Duration(until - q.exec.Now().UnixNano())
	if owes && wait <= 0 {
		delete(q.debts, entityType)
	}
	if wait <= debtSlack {
		return 0
	}
	return wait
}
