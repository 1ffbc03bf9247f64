package main

import "testing"

func TestProcessorsFor(t *testing.T) {
	for _, tt := range []struct {
		what       string
		now, there int
		said       string
		want       int
	}{
		{"a machine of its own", 2, 2, "", 4},
		{"one processor", 1, 1, "", 3},
		{"a limit of two, of sixteen", 2, 16, "", 2},
		{"the environment says so", 2, 2, "2", 2},
		{"the environment says more", 8, 2, "8", 8},
	} {
		if got := processorsFor(tt.now, tt.there, tt.said); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
}
