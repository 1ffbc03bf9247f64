package inbox

import (
	"runtime"
	"time"
)

const (
	// yieldQuick is how long others may take, yieldRest how many times as long
	// as they took nobody is let go first if they take longer.
	yieldQuick = 500 * time.Microsecond
	yieldRest  = 20
)

// Yield lets goroutines that are ready to run go first: they are about to
// add to the inbox, and a turn costs much the same whatever it carries. But who
// lets others go first is behind all of them, and where the store compacts its
// tables each of these may run for 10 ms. So while that is slow the loop does
// not yield; the inbox fills all the same then, as every sync takes longer.
type Yield struct {
	Now   func() time.Time
	until time.Time // not before
}

// ToOthers lets them go first, unless that was slow.
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
