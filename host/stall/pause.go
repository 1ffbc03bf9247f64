package stall

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// PauseLimit is how long a process may stand still unnoticed. A machine that is
	// merely busy delays a goroutine less.
	PauseLimit = time.Second
	// settle is how long after a pause new connections are not trusted: they
	// may have waited in the kernel since before.
	settle = 250 * time.Millisecond
)

// PauseWatch counts the pauses of the process. It is safe for concurrent use; a nil
// Watch never sees any.
type PauseWatch struct {
	began time.Time
	seen  atomic.Int64 // when the clocks were last looked at, by the monotonic one, since began
	wall  atomic.Int64 // the same by the wall clock
	ended atomic.Int64 // when the last pause was noticed; by the monotonic clock
	epoch atomic.Uint64

	mu sync.Mutex // of noticing
}

// NewPauseWatch makes a PauseWatch that has seen no pause. It notices pauses only while Run
// runs.
func NewPauseWatch() *PauseWatch {
	w := &PauseWatch{began: time.Now()}
	w.wall.Store(w.began.UnixNano())
	w.ended.Store(-int64(settle))
	return w
}

// Run looks at the clocks until ctx ends.
func (w *PauseWatch) Run(ctx context.Context) {
	every := time.NewTicker(PauseLimit / 8)
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

// Epoch is how many pauses there were. Whoever notes it when something arrives
// and finds another one later holds what arrived before a pause. It looks at
// the clocks itself, so that nobody who goes on after a pause is told of the
// time before it.
func (w *PauseWatch) Epoch() uint64 {
	if w == nil {
		return 0
	}
	if w.overdue(time.Now()) {
		w.look()
	}
	return w.epoch.Load()
}

// Settling reports that a pause has just ended: what the kernel had accepted
// before it may still turn up as new.
func (w *PauseWatch) Settling() bool {
	return w != nil && w.Epoch() > 0 && int64(time.Since(w.began))-w.ended.Load() < int64(settle)
}

func (w *PauseWatch) overdue(now time.Time) bool {
	// A suspended machine stops the monotonic clock; the wall clock tells.
	return int64(now.Sub(w.began))-w.seen.Load() >= int64(PauseLimit) || now.UnixNano()-w.wall.Load() >= int64(PauseLimit)
}

func (w *PauseWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.overdue(now) {
		w.ended.Store(int64(now.Sub(w.began)))
		w.epoch.Add(1) // before the clocks say that all is well
	}
	w.seen.Store(int64(now.Sub(w.began)))
	w.wall.Store(now.UnixNano())
}
