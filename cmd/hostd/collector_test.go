package main

import "testing"

func TestCollectorPercent(t *testing.T) {
	for _, tt := range []struct {
		live, allocated uint64
		want            int
	}{
		{0, 0, 325}, {1 << 20, 1 << 20, 325}, {32 << 20, 64 << 20, 225}, {64 << 20, 0, 125}, {256 << 20, 0, 50}, {1 << 30, 0, 31}, {1 << 40, 0, 25},
		{0, 1 << 40, 500}, {256 << 20, 128 << 20, 75}, {256 << 20, 1 << 40, 125}, {1 << 30, 1 << 40, 50},
	} {
		if got := collectorPercent(tt.live, tt.allocated); got != tt.want {
			t.Errorf("%d bytes, %d allocated: %d %%, want %d", tt.live, tt.allocated, got, tt.want)
		}
	}
}
