package entity

import (
	"sync/atomic"
	"time"
)

// Rate limits how many commands the entities of a type execute per second on
// this node, over all executors. Above it, commands of clients are rejected,
// and messages and timers wait. An unused allowance is kept for one second.
// Queries do not count, nor do retries that are answered from the idempotency
// window. A Rate is safe for concurrent use.
type Rate struct {
	every int64        // nanoseconds per command
	free  atomic.Int64 // when the next command is allowed, unix nanoseconds
}

// mostRate is the rate from which on there is no limit, because a command takes
// longer than the microsecond that the rate allows for it.
const mostRate = 1_000_000

// NewRate returns a Rate, or nil if perSecond is not positive or at least
// mostRate. A nil Rate limits nothing.
func NewRate(perSecond int64) *Rate {
	if perSecond <= 0 || perSecond >= mostRate {
		return nil
	}
	return &Rate{every: int64(time.Second) / perSecond}
}

// Take charges a command, or returns how long to wait until a command is
// allowed.
func (r *Rate) Take(now int64) (wait time.Duration) {
	if r == nil {
		return 0
	}
	for {
		free := r.free.Load()
		since := max(free, now-int64(time.Second)+r.every)
		if since > now+2*r.every {
			since = now // the clock was set back
		}
		if since > now {
			return time.Duration(since - now)
		}
		if r.free.CompareAndSwap(free, since+r.every) {
			return 0
		}
	}
}
