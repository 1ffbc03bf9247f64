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
// a fixed room and a part of what is reachable.
const (
	collectorRoom  = 64 << 20
	collectorShare = 25 // percent of what is reachable
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
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	now := 100
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		metrics.Read(live)
		if want := collectorPercent(live[0].Value.Uint64()); want > now+now/8 || want < now-now/8 {
			debug.SetGCPercent(want)
			now = want
		}
	}
}

// collectorPercent is the room for a heap with so many reachable bytes, in
// percent of them.
func collectorPercent(live uint64) int {
	if live < collectorRoom/3 {
		return 300 // the least heap that Go has grows with it
	}
	return int(collectorShare + 100*collectorRoom/live)
}
