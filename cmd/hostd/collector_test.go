package main

import "testing"

func TestCollectorPercent(t *testing.T) {
	for _, tt := range []struct {
		live uint64
		want int
	}{{0, 300}, {1 << 20, 300}, {32 << 20, 225}, {64 << 20, 125}, {256 << 20, 50}, {1 << 30, 31}, {1 << 40, 25}} {
		if got := collectorPercent(tt.live); got != tt.want {
			t.Errorf("%d bytes: %d %%, want %d", tt.live, got, tt.want)
		}
	}
}
