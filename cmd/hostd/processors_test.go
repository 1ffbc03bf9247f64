package main

import "testing"

// TestProcessors: some are spare, but not where a number was given or time is
// limited.
func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		now, cpus int
		told      string
		want      int
	}{
		{2, 2, "", 4}, {1, 1, "", 3}, {64, 64, "", 66},
		{2, 2, "2", 2}, {8, 2, "8", 8},
		{2, 64, "", 2},
	} {
		if got := processors(c.now, c.cpus, c.told); got != c.want {
			t.Errorf("%d of %d CPUs, GOMAXPROCS=%q: %d, want %d", c.now, c.cpus, c.told, got, c.want)
		}
	}
}
