// Package stall detects that the raft loop of a node is stalled, and whether
// that is because the disk does not respond: a write or sync has not returned.
//
// Time is counted in ticks of the watch itself. If the process is stopped by a
// signal or the machine is suspended, the watch does not tick either. So a
// stopped process or a suspended machine is not mistaken for a disk failure.
//
// PauseWatch detects that the whole process was paused. Other nodes may have
// continued in the meantime, so requests that arrived before the pause are
// stale: their senders have given up, and another node may have carried them
// out.
//
// The package never ends the process by itself. The caller of each Run method
// owns its goroutine.
package stall

import (
	"context"
	"sync"
	"time"
)

// period is the time between two ticks of a watch.
const period = 250 * time.Millisecond

// Watch measures how long the disk and the loop have been stalled. It is safe
// for concurrent use.
type Watch struct {
	loop turnCounter

	mu     sync.Mutex
	looks  uint64
	begun  map[uint64]uint64 // tick at which each running operation began, by its number
	number uint64            // number of the last operation
	turned uint64            // turns at the last tick
	since  uint64            // tick at which turned changed last
}

// turnCounter is the raft loop.
type turnCounter interface {
	// Turns returns the number of turns of the loop, 0 before the loop exists.
	// It must not block.
	Turns() uint64
}

// New returns a Watch of a loop and a disk.
func New(loop turnCounter) *Watch {
	return &Watch{loop: loop, begun: map[uint64]uint64{}}
}

// Run ticks until ctx ends, and calls each after every tick.
func (w *Watch) Run(ctx context.Context, each func()) {
	every := time.NewTicker(period)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			w.look()
			each()
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watch) look() {
	turns := w.loop.Turns()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if turns != w.turned {
		w.turned, w.since = turns, w.looks
	}
}

// Disk returns a lower bound of the duration of the longest running operation,
// or 0 if none is running.
func (w *Watch) Disk() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := w.looks
	for _, look := range w.begun {
		oldest = min(oldest, look)
	}
	return span(w.looks - oldest)
}

// Loop returns a lower bound of the time since the last turn of the loop, or 0
// if there is no loop.
func (w *Watch) Loop() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turned == 0 {
		return 0
	}
	return span(w.looks - w.since)
}

// span returns the minimum time between a number of ticks. The first tick does
// not count, because an operation may begin just before it.
func span(looks uint64) time.Duration {
	if looks == 0 {
		return 0
	}
	return time.Duration(looks-1) * period
}

// begin registers an operation. The caller must call end after it.
func (w *Watch) begin() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	number := w.number
	w.begun[number] = w.looks
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.begun, number)
	}
}
