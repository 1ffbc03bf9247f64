package raftgroup

import (
	"slices"
	"testing"
)

func TestShareDividesRetainedBytes(t *testing.T) {
	for _, tt := range []struct {
		name        string
		each, total int64
		sizes       []int64
		want        int64
	}{
		{"nothing", 100, 1000, nil, 100},
		{"little", 100, 1000, []int64{5, 70, 300}, 100},
		{"one too many", 100, 250, []int64{100, 100, 100}, 83},
		{"small ones keep all", 100, 200, []int64{10, 20, 500, 900}, 85},
		{"as much as fits", 100, 200, []int64{50, 50, 50, 50}, 100},
		{"none for anybody", 100, 0, []int64{50, 60}, 0},
	} {
		got := shareBytes(slices.Clone(tt.sizes), tt.each, tt.total)
		var kept int64
		for _, size := range tt.sizes {
			kept += min(size, got)
		}
		if got != tt.want || kept > tt.total {
			t.Errorf("%s: %d each, %d together, want %d", tt.name, got, kept, tt.want)
		}
	}
}
