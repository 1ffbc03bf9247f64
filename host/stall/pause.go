package stall

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pauseLimit is the longest pause of the process that is not counted.
	// Scheduling delays on a busy machine are shorter.
	pauseLimit = time.Second
	// settle is how long after a pause new connections are not trusted, because
	// they may have waited in the kernel since before the pause.
	settle = 250 * time.Millisecond
)

// PauseWatch counts pauses of the process, such as a suspended machine. It is
// safe for concurrent use. A nil PauseWatch never counts a pause.
type PauseWatch struct {
	began time.Time
	seen  atomic.Int64 // monotonic time of the last look at the clocks, since began, in ns
	wall  atomic.Int64 // wall time of the last look, as Unix time in ns
	ended atomic.Int64 // monotonic time when the last pause was noticed, since began, in ns
	epoch atomic.Uint64

	mu sync.Mutex // held while the clocks are compared
}

// NewPauseWatch returns a PauseWatch that has counted no pause. It notices
// pauses only while Run runs.
func NewPauseWatch() *PauseWatch {
	w := &PauseWatch{began: time.Now()}
	w.wall.Store(w.began.UnixNano())
	w.ended.Store(-int64(settle))
	return w
}

// Run compares the clocks until ctx ends.
func (w *PauseWatch) Run(ctx context.Context) {
	every := time.NewTicker(pauseLimit / 8)
	defer every.Stop()
	for {
		w.look()
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// Epoch returns the number of pauses. A caller can store it when a request
// arrives; if it has changed later, the request arrived before a pause. Epoch
// compares the clocks itself, so that it never returns an outdated value after
// a pause.
func (w *PauseWatch) Epoch() uint64 {
	if w == nil {
		return 0
	}
	if w.overdue(time.Now()) {
		w.look()
	}
	return w.epoch.Load()
}

// Settling reports whether a pause has ended so recently that connections
// accepted by the kernel before it may still show up as new.
func (w *PauseWatch) Settling() bool {
	return w != nil && w.Epoch() > 0 && int64(time.Since(w.began))-w.ended.Load() < int64(settle)
}

func (w *PauseWatch) overdue(now time.Time) bool {
	// A suspended machine may stop the monotonic clock, but not the wall clock.
	return int64(now.Sub(w.began))-w.seen.Load() >= int64(pauseLimit) || now.UnixNano()-w.wall.Load() >= int64(pauseLimit)
}

func (w *PauseWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.overdue(now) {
		w.ended.Store(int64(now.Sub(w.began)))
		w.epoch.Add(1) // before the clocks are updated, so that no other goroutine sees the old epoch
	}
	w.seen.Store(int64(now.Sub(w.began)))
	w.wall.Store(now.UnixNano())
}
