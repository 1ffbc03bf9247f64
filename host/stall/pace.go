package stall

import (
	"math"
	"sync"
	"time"
)

const (
	// paceSpan is the time that a moving mean looks back, mostly.
	paceSpan = 5 * time.Second
	// paceKept is how long a mean tells something without another value.
	paceKept = 2 * time.Second
)

// Pace is how long something takes of late: a mean in which a value weighs the
// less the older it is, however many there are. It is safe for concurrent use.
type Pace struct {
	mu   sync.Mutex
	mean float64
	last time.Time
}

// Add takes a value at its time.
func (m *Pace) Add(d time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	weight := 1.0
	if !m.last.IsZero() {
		// A value stands for the time since the one before.
		weight = 1 - math.Exp(-max(now.Sub(m.last), 0).Seconds()/paceSpan.Seconds())
	}
	m.mean += weight * (float64(d) - m.mean)
	m.last = now
}

// At is the mean, 0 where there was no value of late.
func (m *Pace) At(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.last) > paceKept {
		return 0
	}
	return time.Duration(m.mean)
}
