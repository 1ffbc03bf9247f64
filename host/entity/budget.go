package entity

import (
	"sync/atomic"
	"time"
)

// Budget limits what the entities of a type spend per second on this node, over
// all executors. The cost of a command is known only after it has run, so a
// command may exceed the budget. The excess is a debt, and later commands wait
// until it is paid. An unspent budget is kept for one second. A Budget is safe
// for concurrent use.
type Budget struct {
	perSecond float64
	paid      atomic.Int64 // when all debt is paid, unix nanoseconds
}

// budgetMost bounds how long commands wait because of one expensive command.
const budgetMost = time.Minute

// NewBudget returns a Budget, or nil if perSecond is not positive. A nil Budget
// limits nothing.
func NewBudget(perSecond int64) *Budget {
	if perSecond <= 0 {
		return nil
	}
	return &Budget{perSecond: float64(perSecond)}
}

// Wait returns how long commands must wait until the debt is paid, or 0 if
// there is none.
func (b *Budget) Wait(now int64) time.Duration {
	if b == nil {
		return 0
	}
	wait := time.Duration(b.paid.Load() - now)
	if wait > budgetMost {
		return 0 // the clock was set back
	}
	return max(0, wait)
}

// spend charges the budget.
func (b *Budget) spend(now int64, amount uint64) {
	if b == nil {
		return
	}
	takes := int64(min(float64(amount)/b.perSecond*float64(time.Second), float64(budgetMost)))
	for {
		old := b.paid.Load()
		paid := max(old, now-int64(time.Second))
		if paid > now+int64(budgetMost) {
			paid = now // the clock was set back
		}
		if b.paid.CompareAndSwap(old, min(paid+takes, now+int64(budgetMost))) {
			return
		}
	}
}
