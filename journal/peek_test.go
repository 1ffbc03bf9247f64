package journal

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

func TestPeekExpected(t *testing.T) {
	for _, id := range []string{"x", "a longer name", ""} {
		raw := AppendRecord(nil, &Record{Entity: sharding.EntityID{Type: "t", ID: id}, Expected: 1<<40 + 7, Reply: []byte("r"), CommandID: "c"})
		for n := range raw {
			if at, ok := PeekExpected(raw[:n]); ok && at != 1<<40+7 {
				t.Errorf("of the first %d bytes it says %d", n, at)
			}
		}
		if at, ok := PeekExpected(append(raw, 1, 2, 3)); !ok || at != 1<<40+7 {
			t.Errorf("it says %d, %v", at, ok)
		}
	}
}
