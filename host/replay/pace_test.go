package replay

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// loadFunc reports whether requests wait for executors.
type loadFunc func() bool

func (f loadFunc) IsBusy() bool { return f() }

// idle are executors that are never busy.
var idle = loadFunc(func() bool { return false })

// took returns how long the given number of pieces takes on the test's virtual
// clock.
func took(t *testing.T, p *pace, pieces int) time.Duration {
	t.Helper()
	began := time.Now()
	for range pieces * piece {
		if err := p.spend(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began)
}

// TestPace checks that spend takes as long as the rate requires, that it waits
// while executors are busy, but not forever, and that the end of its context
// ends the wait.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if d := took(t, newPace(0, idle), 1000); d != 0 {
			t.Errorf("at any rate it takes %v", d)
		}
		if d := took(t, nil, 1000); d != 0 {
			t.Errorf("without a pace it takes %v", d)
		}
		// The limiter begins with one piece available.
		if d := took(t, newPace(10*piece, idle), 101); d < 9900*time.Millisecond || d > 10100*time.Millisecond {
			t.Errorf("100 pieces of 10 a second take %v", d)
		}
		var busy atomic.Bool
		busy.Store(true)
		p := newPace(0, loadFunc(busy.Load))
		if d := took(t, p, 3); d != 3*yieldMost {
			t.Errorf("beside lanes that stay busy 3 pieces take %v", d)
		}
		calm := time.AfterFunc(10*yieldEvery-yieldEvery/2, func() { busy.Store(false) })
		defer calm.Stop()
		if d := took(t, p, 3); d != 10*yieldEvery {
			t.Errorf("beside lanes that are busy at first 3 pieces take %v", d)
		}
		for name, p := range map[string]*pace{"the rate": newPace(1, idle), "lanes": newPace(0, loadFunc(func() bool { return true }))} {
			ctx, cancel := context.WithTimeout(t.Context(), yieldMost/2)
			if err := p.spend(ctx, 10*piece); err == nil {
				t.Errorf("what waits for %s does not end", name)
			}
			cancel()
		}
	})
}

// TestWaitBeyondDeadlineFailsWithDeadlineExceeded checks that a wait that would outlast
// the context fails with context.DeadlineExceeded and not with an error of the
// limiter.
func TestWaitBeyondDeadlineFailsWithDeadlineExceeded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := newPace(1, idle).spend(ctx, 4*piece); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait of minutes: %v", err)
	}
}
