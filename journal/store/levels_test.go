package store

import (
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestUnmergedBytes: the backlog counts bytes of new tables, merged or not, and
// the excess of levels.
func TestUnmergedBytes(t *testing.T) {
	levels := func(sizes ...int64) (all []badger.LevelInfo) {
		for i, n := range sizes {
			all = append(all, badger.LevelInfo{Level: i, NumTables: 1, Size: n, TargetSize: 10})
		}
		all[0].TargetSize = 0
		return all
	}
	for _, tt := range []struct {
		what   string
		levels []badger.LevelInfo
		want   int64
	}{
		{"nothing", levels(0, 0, 0, 0), 0},
		{"new tables", levels(30, 0, 0, 0), 30},
		{"levels within their size", levels(2, 10, 9, 0), 2},
		{"two beyond theirs", levels(2, 15, 30, 0), 27},
		{"the last, which has none", levels(2, 10, 10, 500), 2},
	} {
		if got := unmergedBytes(tt.levels); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
	s := open(t, t.TempDir(), small)
	for version := uint64(1); s.Watermark() == 0; version++ {
		put(t, s, version, 1, 200, 300)
	}
	if s.UnmergedBytes() == 0 {
		t.Error("a new table counts for nothing")
	}
}
