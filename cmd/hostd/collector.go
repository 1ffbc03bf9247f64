package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// By default Go lets the heap grow by as much as is reachable before it
// collects again. This default does not suit a node. If its heap is small,
// it collects too often. If its heap is large, most of it is tables and
// caches without pointers, which cost little to mark, so room in proportion
// to them is wasted. Therefore a node gets as much room as it allocates
// between two checks, within limits, plus a percentage of the reachable
// bytes, because a collection makes other goroutines wait for a processor.
const (
	collectorRoom  = 64 << 20
	collectorMost  = 256 << 20
	collectorShare = 25 // percent of the reachable bytes
	// collectorLarge is the highest GC percentage that is set. The reachable
	// bytes may grow a lot before the next check, and the heap with them.
	collectorLarge = 500
	collectorLook  = time.Second
)

// runCollector adjusts the garbage collector until ctx ends, unless the
// environment configures it.
func runCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	look := time.NewTicker(collectorLook)
	defer look.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(heap)
	now, before := 100, heap[1].Value.Uint64()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		metrics.Read(heap)
		live, allocs := heap[0].Value.Uint64(), heap[1].Value.Uint64()
		if want := collectorPercent(live, allocs-before); want > now+now/8 || want < now-now/8 {
			debug.SetGCPercent(want)
			now = want
		}
		before = allocs
	}
}

// collectorPercent returns the GC percentage for a heap. live is the number of
// reachable bytes, and allocated the number of bytes that are allocated between
// two checks.
func collectorPercent(live, allocated uint64) int {
	room := min(max(allocated, collectorRoom), collectorMost)
	live = max(live, collectorRoom/3) // Go's minimum heap grows with the percentage
	return int(min(collectorShare+100*room/live, collectorLarge))
}
