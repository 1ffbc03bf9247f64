package stall

import (
	"math"
	"sync"
	"time"
)

const (
	// paceSpan is the time constant of the moving mean.
	paceSpan = 5 * time.Second
	// paceKept is how long the mean is valid without a new value.
	paceKept = 2 * time.Second
)

// Pace is the recent mean duration of an operation. It is an exponential moving
// mean in which the weight of a value depends on its age, not on the number of
// values after it. It is safe for concurrent use.
type Pace struct {
	mu   sync.Mutex
	mean float64
	last time.Time
}

// Add adds a value measured at now.
func (m *Pace) Add(d time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	weight := 1.0
	if !m.last.IsZero() {
		// A value represents the time since the previous value.
		weight = 1 - math.Exp(-max(now.Sub(m.last), 0).Seconds()/paceSpan.Seconds())
	}
	m.mean += weight * (float64(d) - m.mean)
	m.last = now
}

// At returns the mean, or 0 if there was no recent value.
func (m *Pace) At(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.last) > paceKept {
		return 0
	}
	return time.Duration(m.mean)
}
