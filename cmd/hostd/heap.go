package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// After a busy time the heap is mostly garbage. The collector runs again only
// when the room that runCollector left is used up, which takes an idle node
// minutes, and Go then returns the freed memory to the system slowly. Therefore
// a node that has been quiet for a while after a busy time collects once and
// returns the memory to the system.
const (
	heapPeriod = 2 * time.Second
	quietTurns = 4 // number of quiet periods before a collection
	// A node that allocates more than this in a period is busy. An idle node
	// with 256 shards allocates a tenth of it.
	busyBytes = 48 << 20
)

// heapRest decides when to collect, based on the number of allocated bytes.
type heapRest struct {
	allocated uint64
	busy      bool // the node was busy since the last collection
	quiet     int  // number of quiet periods
}

// due is called once per period with the total of allocated bytes, and reports
// whether to collect now.
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

// watchHeap returns memory to the system after busy times, until ctx ends. A
// collection needs some tens of milliseconds of one core.
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
