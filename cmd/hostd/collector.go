package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go lets the heap grow by as much as is reachable before it collects again.
// A node's heap is small, and then that is too often, or it is large for the
// sake of tables and caches without a pointer in them, and then it is room
// that nothing needs: marking costs by what is to be looked at. So a node takes
// as much room as it allocates between two looks, within bounds, and a part of
// what is reachable: while it collects others wait for a processor.
const (
	collectorRoom  = 64 << 20
	collectorMost  = 256 << 20
	collectorShare = 25 // percent of what is reachable
	// collectorLarge bounds all of it, in percent: what is reachable may be much
	// more before the next look.
	collectorLarge = 500
	collectorLook  = time.Second
)

// runCollector keeps the room of Go's collector until ctx ends, unless the
// environment says what it is to be.
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

// collectorPercent is the room for a heap with so many reachable bytes that
// allocates so many between two looks, in percent of the former.
func collectorPercent(live, allocated uint64) int {
	room := min(max(allocated, collectorRoom), collectorMost)
	live = max(live, collectorRoom/3) // the least heap that Go has grows with the percentage
	return int(min(collectorShare+100*room/live, collectorLarge))
}
