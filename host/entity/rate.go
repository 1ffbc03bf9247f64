package entity

import (
	"sync/atomic"
	"time"
)

// Rate bounds how many commands the entities of a type carry out in a second on
// this node, over all executors: those of clients, which are refused past it, and
// sends and timers, which wait. What was not used is kept for one second.
// Queries, and commands that are answered from memory because their id is
// known, do not count. It is safe for concurrent use.
type Rate struct {
	every int64        // nanoseconds that a command takes up
	free  atomic.Int64 // when the next one is free, unix nanoseconds
}

// mostRate is from what rate on there is none: a command takes longer.
const mostRate = 1_000_000

// NewRate returns nil, which bounds nothing, for 0 and for a million and more.
func NewRate(perSecond int64) *Rate {
	if perSecond <= 0 || perSecond >= mostRate {
		return nil
	}
	return &Rate{every: int64(time.Second) / perSecond}
}

// Take takes a command, or says how long the wait for the next one is.
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
