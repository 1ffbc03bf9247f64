// Package stall notices that the raft loop of a node stands still, and that it
// does because the disk does not answer: a write or a sync that was begun has
// not returned.
//
// Time is counted in looks of the watch itself. A process that is stopped by a
// signal, or whose machine is suspended, looks as seldom as its disk answers, so
// neither is taken for a fault of the disk.
//
// PauseWatch notices that the whole process stood still. Other nodes may have
// continued in the meantime, so requests that arrived before the pause are no longer
// wanted: their senders have given up, and may have had them done by another node.
//
// The package never ends anything by itself. Each watch has one goroutine, Run, owned
// by whoever calls it.
package stall

import (
	"context"
	"sync"
	"time"
)

// Period is the time between two looks.
const Period = 250 * time.Millisecond

// Watch measures how long the disk and the loop have stood still. It is safe
// for concurrent use.
type Watch struct {
	turns func() uint64

	mu     sync.Mutex
	looks  uint64
	begun  map[uint64]uint64 // look at which each operation began, by its number
	number uint64            // of the last operation
	turned uint64            // turns at the last look
	since  uint64            // look at which turned was new
}

// New makes a watch. turns is how often the loop has gone round, 0 while there
// is none; it must not block.
func New(turns func() uint64) *Watch {
	return &Watch{turns: turns, begun: map[uint64]uint64{}}
}

// Run looks until ctx ends, and calls each after every look.
func (w *Watch) Run(ctx context.Context, each func()) {
	every := time.NewTicker(Period)
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
	turns := w.turns()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if turns != w.turned {
		w.turned, w.since = turns, w.looks
	}
}

// Disk is how long the operation has lasted that was begun first of those that
// have not returned, at least; 0 where there is none.
func (w *Watch) Disk() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := w.looks
	for _, look := range w.begun {
		oldest = min(oldest, look)
	}
	return span(w.looks - oldest)
}

// Loop is how long the loop has not gone round, at least; 0 where there is none.
func (w *Watch) Loop() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turned == 0 {
		return 0
	}
	return span(w.looks - w.since)
}

// span is what lies between so many looks at least: an operation may begin just
// before one.
func span(looks uint64) time.Duration {
	if looks == 0 {
		return 0
	}
	return time.Duration(looks-1) * Period
}

// begin notes that an operation begins; the end of it is to be called.
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
