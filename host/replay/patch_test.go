package replay

import (
	"fmt"
	"strings"
	"testing"
)

// TestPatchesAreBounded checks that a patch that exceeds the bound on
// operations or bytes keeps its first operations.
func TestPatchesAreBounded(t *testing.T) {
	list := func(n int, value string) []byte {
		return []byte("[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]")
	}
	for _, tt := range []struct {
		n    int
		is   string
		want int
		cut  bool
	}{
		{1, "1", 1, false},
		{maxPatch, "1", maxPatch, false},
		{maxPatch + 1, "1", maxPatch, true},
		{3, fmt.Sprintf("%q", strings.Repeat("x", 1500)), 2, true},
		{1, fmt.Sprintf("%q", strings.Repeat("x", maxPatchBytes)), 0, true},
	} {
		patch, cut := patchOf(list(tt.n, "0"), list(tt.n, tt.is))
		if len(patch) != tt.want || cut != tt.cut {
			t.Errorf("%d values of %d bytes: %d operations, cut %v, want %d, %v", tt.n, len(tt.is), len(patch), cut, tt.want, tt.cut)
		}
	}
}
