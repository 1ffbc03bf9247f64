package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// After a busy time the heap is mostly garbage: the collector comes by when
// the room that runCollector leaves it is used, which a node with nothing to do
// takes minutes for, and what it frees then goes back to the system slowly. So
// a node collects once, and gives back, when it has been quiet for a while
// after it was busy.
const (
	heapPeriod = 2 * time.Second
	quietTurns = 4 // periods
	// A node that allocates more than this in a period is busy. With nothing
	// to do and 256 shards it is a tenth of that.
	busyBytes = 48 << 20
)

// heapRest decides when to collect, from how much has been allocated.
type heapRest struct {
	allocated uint64
	busy      bool // since the last collection
	quiet     int  // periods
}

// due takes the bytes that were ever allocated, once a period, and says
// whether now is the time.
func (r *heapRest) due(allocated uint64) bool {
	since := allocated - r.allocated
	r.allocated = allocated
	if since > busyBytes {
		r.busy, r.quiet = true, 0
		return false
	}
	r.quiet++
	if !r.busy || r.quiet < quietTurns {
		return false
	}
	r.busy = false
	return true
}

// watchHeap gives memory back after busy times, until ctx ends. A collection
// takes some tens of milliseconds of a core.
func watchHeap(ctx context.Context) {
	every := time.NewTicker(heapPeriod)
	defer every.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	var rest heapRest
	for {
		select {
		case <-every.C:
			metrics.Read(sample)
			if sample[0].Value.Kind() == metrics.KindUint64 && rest.due(sample[0].Value.Uint64()) {
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return
		}
	}
}
