package raftgroup

import (
	"runtime"
	"time"
)

const (
	// maxYield is the maximum duration of a yield. After a slower yield, the
	// loop does not yield for yieldBackoff times the duration of that yield.
	maxYield     = 500 * time.Microsecond
	yieldBackoff = 20
)

// yield lets goroutines that are ready to run go before the loop. They are
// likely to add to the inbox, and a turn costs about the same whatever it
// carries. However, the loop then runs after all of them, and while the store
// compacts its tables, each of them may run for 10 ms. After a slow yield, the
// loop therefore stops yielding for a while. The inbox fills without yielding
// then, because every sync takes longer.
type yield struct {
	Now   func() time.Time
	until time.Time // do not yield before this time
}

// Gosched yields the processor unless a recent yield was slow.
func (y *yield) Gosched() {
	began := y.Now()
	if began.Before(y.until) {
		return
	}
	runtime.Gosched()
	end := y.Now()
	if took := end.Sub(began); took > maxYield {
		y.until = end.Add(yieldBackoff * took)
	}
}
