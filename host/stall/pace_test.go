package stall

import (
	"testing"
	"time"
)

func TestMovingMean(t *testing.T) {
	const ms = time.Millisecond
	var m Pace
	now := time.Unix(1000, 0)
	feed := func(d, every, span time.Duration) {
		for end := now.Add(span); now.Before(end); {
			now = now.Add(every)
			m.Add(d, now)
		}
	}
	within := func(low, high time.Duration) {
		t.Helper()
		if got := m.At(now); got < low || got > high {
			t.Errorf("the mean is %v, wanted %v to %v", got, low, high)
		}
	}
	within(0, 0)
	feed(2*ms, ms, time.Minute)
	within(2*ms-1, 2*ms+1)
	feed(200*ms, 200*ms, time.Second) // a short slow phase among many fast values
	within(20*ms, 50*ms)
	feed(200*ms, 200*ms, 20*time.Second)
	within(190*ms, 200*ms)
	feed(2*ms, ms, 30*time.Second)
	within(2*ms, 3*ms)
	now = now.Add(3 * time.Second)
	within(0, 0)
}
