package bench

import "testing"

func TestBenchPayloadHasItsSize(t *testing.T) {
	for size, want := range map[int]int{0: 12, 10: 12, 100: 100, 4096: 4096} {
		if got := benchPayload(size); len(got) != want {
			t.Errorf("%d: got %d bytes, want %d", size, len(got), want)
		}
	}
}
