package guest

import (
	"testing"

	"github.com/hostd/hostd/abi"
)

// TestJoinedSegmentOutsideMemoryIsRejected checks that a module whose data
// lies outside of memory still fails to start after its segments were joined.
func TestJoinedSegmentOutsideMemoryIsRejected(t *testing.T) {
	guest := &testGuest{data: [][]byte{
		cat([]byte{0}, i32c(24*pageBytes-2), []byte{opEnd}, text("a")),
		cat([]byte{0}, i32c(24*pageBytes-1), []byte{opEnd}, text("bc"))}}
	if _, err := newEngine(t, Options{}).Compile(t.Context(), [32]byte{}, guest.build()); err == nil {
		t.Error("compiled and started")
	}
	guest.data[1] = cat([]byte{0}, i32c(24*pageBytes-1), []byte{opEnd}, text("b"))
	guest.bodies = map[string][]byte{abi.ExportQuery: spanc(24*pageBytes-2, 2)}
	if out, err := start(t, Options{}, guest).Query(0, nil, Env{}); err != nil || string(out) != "ab" {
		t.Errorf("memory holds %q, %v", out, err)
	}
}
