package entity

import (
	"sync/atomic"
	"time"
)

// Budget bounds what the entities of a type spend in a second on this node,
// over all lanes. What a command costs is known once it has run, so commands
// run as long as nothing is owed, and what they spent beyond the budget is
// waited for. What was not spent is kept for one second. It is safe for
// concurrent use.
type Budget struct {
	perSecond float64
	paid      atomic.Int64 // when all that was spent is paid, unix nanoseconds
}

// budgetMost is the longest that commands wait for what one has spent.
const budgetMost = time.Minute

// NewBudget returns nil, which bounds nothing, for 0.
func NewBudget(perSecond int64) *Budget {
	if perSecond <= 0 {
		return nil
	}
	return &Budget{perSecond: float64(perSecond)}
}

// Wait is for how long nothing more may be spent.
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

// Spend takes what was spent from the budget.
func (b *Budget) Spend(now int64, amount uint64) {
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
