package peer

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// futureFor is how long the last refusal is reported as a reason why this
	// node makes no progress.
	futureFor = 10 * time.Second
	// futureEvery is the minimum time between two log lines about such
	// refusals, because anybody who reaches the listener can cause them.
	futureEvery = time.Minute
)

// futureStarts remembers the last node that this node refused because the
// other node's start time is in the future. If this node's own clock is
// behind, it refuses all the nodes that it needs. It is safe for concurrent
// use.
type futureStarts struct {
	mu       sync.Mutex
	last     error
	at       time.Time
	reported time.Time
}

// note notes a refusal, and logs it unless one was logged in the last minute.
func (f *futureStarts) note(err error, now time.Time, logger *slog.Logger) {
	f.mu.Lock()
	report := f.reported.IsZero() || now.Sub(f.reported) >= futureEvery
	if report {
		f.reported = now
	}
	f.last, f.at = err, now
	f.mu.Unlock()
	if report {
		logger.Warn("rejected a node because its clock and this node's disagree", "error", err)
	}
}

// FutureStart returns the error with which this node recently refused a node
// whose start time is in the future by this node's clock. It returns nil if it
// refused none.
func (p *Peers) FutureStart() error {
	p.future.mu.Lock()
	defer p.future.mu.Unlock()
	if p.future.last == nil || time.Since(p.future.at) > futureFor {
		return nil
	}
	return p.future.last
}
