package raftgroup

import (
	"testing"
	"time"
)

// TestYieldBacksOffAfterSlowYields: after a slow yield, the loop does not yield
// for a multiple of the time that the yield took.
func TestYieldBacksOffAfterSlowYields(t *testing.T) {
	clock, step := time.Unix(1_700_000_000, 0), maxYield
	looks := 0
	y := yield{Now: func() time.Time {
		looks++
		clock = clock.Add(step)
		return clock
	}}
	yields := func() bool {
		looks = 0
		y.Gosched()
		return looks == 2 // the clock was read before and after
	}
	for range 10 {
		if !yields() {
			t.Fatal("others are quick and not let go first")
		}
	}
	step = maxYield * 2
	if !yields() {
		t.Fatal("the last ones were quick")
	}
	for n := range yieldBackoff - 1 {
		if yields() {
			t.Fatalf("others took long, %d times as long ago", n)
		}
	}
	if !yields() {
		t.Fatal("others are not let go first any more")
	}
}
