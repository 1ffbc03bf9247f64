package inbox

import (
	"runtime"
	"time"
)

const (
	// yieldQuick is how long a yield may take. After a slower one, the loop
	// does not yield for yieldRest times as long as it took.
	yieldQuick = 500 * time.Microsecond
	yieldRest  = 20
)

// Yield lets goroutines that are ready to run go before the loop. They are
// likely to add to the inbox, and a turn costs about the same whatever it
// carries. But the loop then runs after all of them, and while the store
// compacts its tables each of them may run for 10 ms. So after a slow yield the
// loop stops yielding for a while. The inbox fills anyway then, because every
// sync takes longer.
type Yield struct {
	Now   func() time.Time
	until time.Time // not before
}

// ToOthers yields the processor unless a recent yield was slow.
func (y *Yield) ToOthers() {
	began := y.Now()
	if began.Before(y.until) {
		return
	}
	runtime.Gosched()
	end := y.Now()
	if took := end.Sub(began); took > yieldQuick {
		y.until = end.Add(yieldRest * took)
	}
}
