package main

import "testing"

// TestHeapIsCollectedOnceAfterLoad checks that the heap is not collected
// under load, and not repeatedly while idle.
func TestHeapIsCollectedOnceAfterLoad(t *testing.T) {
	var r heapRest
	const idle, load = busyBytes / 10, busyBytes + 1
	var allocated uint64
	for i, step := range []struct {
		bytes uint64
		turns int
		due   int // number of the period in which due returns true; 0: none
	}{
		{idle, 20, 0},
		{load, 10, 0},
		{idle, quietTurns - 1, 0}, // a pause
		{load, 1, 0},
		{idle, 20, quietTurns},
		{load, 1, 0},
		{idle, 20, quietTurns},
	} {
		for turn := range step.turns {
			allocated += step.bytes
			if got := r.due(allocated); got != (turn+1 == step.due) {
				t.Fatalf("step %d, turn %d: due is %v", i, turn+1, got)
			}
		}
	}
}
