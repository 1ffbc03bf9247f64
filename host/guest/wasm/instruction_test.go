package wasm

import (
	"fmt"
	"testing"
)

func TestSignedNumbers(t *testing.T) {
	for _, want := range []int32{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 1<<31 - 1, -1 << 31, 1<<28 - 1, -1 << 28, 1 << 30} {
		encoded := AppendSigned(nil, int64(want))
		c := NewCursor(encoded)
		if got := c.readSigned(); got != want || c.Remaining() != 0 {
			t.Errorf("%d is read as %d", want, got)
		}
	}
	for value, want := range map[int64]string{0: "00", -1: "7f", 63: "3f", 64: "c000", -64: "40", -65: "bf7f", 8192: "80c000", 1<<31 - 1: "ffffffff07"} {
		if got := fmt.Sprintf("%x", AppendSigned(nil, value)); got != want {
			t.Errorf("%d is written %s, want %s", value, got, want)
		}
	}
}
