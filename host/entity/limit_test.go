package entity

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestRateLimitsCommandsPerSecond(t *testing.T) {
	if NewRate(0) != nil || NewRate(mostRate) != nil || (*Rate)(nil).Take(5) != 0 {
		t.Error("a rate of 0 limits commands")
	}
	second := int64(time.Second)
	for _, perSecond := range []int64{1, 3, 1000} {
		r := NewRate(perSecond)
		now := int64(1_000_000) * second
		burst := func() (n int64) {
			for r.Take(now) == 0 {
				n++
			}
			return n
		}
		if n := burst(); n != perSecond {
			t.Errorf("%d a second: %d at once", perSecond, n)
		}
		wait := r.Take(now)
		if want := time.Second / time.Duration(perSecond); wait <= 0 || wait > want {
			t.Errorf("%d a second: wait %v, want up to %v", perSecond, wait, want)
		}
		if now += int64(wait); r.Take(now) != 0 || r.Take(now) == 0 {
			t.Errorf("%d a second: after the wait there is not just one", perSecond)
		}
		if now += 100 * second; burst() != perSecond {
			t.Errorf("%d a second: a pause is kept for more than a second, or less", perSecond)
		}
		if now -= 1000 * second; r.Take(now) != 0 {
			t.Errorf("%d a second: a clock that was set back stops everything", perSecond)
		}
	}
}

// TestRateIsSharedByExecutors checks that executors that share a rate
// concurrently get no more in total than one executor would.
func TestRateIsSharedByExecutors(t *testing.T) {
	r := NewRate(5000)
	var taken atomic.Int64
	var executors sync.WaitGroup
	for range 4 {
		executors.Go(func() {
			for range 5000 {
				if r.Take(int64(time.Hour)) == 0 {
					taken.Add(1)
				}
			}
		})
	}
	if executors.Wait(); taken.Load() != 5000 {
		t.Errorf("%d of 5000 were taken", taken.Load())
	}
}

func TestBudgetDelaysSpendersInDebt(t *testing.T) {
	none := NewBudget(0)
	none.spend(5, 1<<40)
	if none != nil || none.Wait(5) != 0 {
		t.Error("a budget of 0 limits commands")
	}
	second := int64(time.Second)
	b, now := NewBudget(1000), int64(1_000_000)*second
	for i, step := range []struct {
		after time.Duration
		spend uint64
		wait  time.Duration
	}{
		{0, 0, 0},
		{0, 1000, 0},                                  // spend the unused budget of one second
		{0, 250, time.Second / 4},                     // spend more than the budget
		{time.Second / 8, 0, time.Second / 8},         // the debt falls with time
		{time.Second / 8, 0, 0},                       // the debt is paid
		{100 * time.Second, 1001, time.Second / 1000}, // a longer pause saves at most the budget of one second
		{budgetMost, 0, 0},
		{0, 1 << 40, budgetMost - time.Second}, // the debt is limited to the longest wait
		{0, 1 << 62, budgetMost},
		{-10 * budgetMost, 0, 0}, // the clock was set back
		{0, 1000, time.Second},
	} {
		now += int64(step.after)
		b.spend(now, step.spend)
		if got := b.Wait(now); (got - step.wait).Abs() > time.Microsecond {
			t.Errorf("step %d: wait %v, want %v", i, got, step.wait)
		}
	}
}
