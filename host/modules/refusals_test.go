package modules

import (
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
)

func TestRememberedRejectionsAreBounded(t *testing.T) {
	var r refusals
	start := time.Unix(1_000_000, 0)
	digest := func(n int) journal.Digest { return journal.Digest{byte(n), byte(n >> 8)} }
	if _, refused := r.find(digest(0), start); refused {
		t.Error("an unknown module is refused")
	}
	for i := range 2 * maxRefusals {
		r.note(digest(i), "bad", start.Add(time.Duration(i)*time.Millisecond))
	}
	end := start.Add(2 * maxRefusals * time.Millisecond)
	for i := range 2 * maxRefusals {
		if reason, refused := r.find(digest(i), end); refused != (i >= maxRefusals) || refused && reason != "bad" {
			t.Fatalf("module %d: %v %q", i, refused, reason)
		}
	}
	if len(r.by) != maxRefusals || r.order.Len() != maxRefusals {
		t.Errorf("%d and %d are remembered", len(r.by), r.order.Len())
	}
	last := 2*maxRefusals - 1
	if _, refused := r.find(digest(last), end.Add(refusedFor)); refused {
		t.Error("a refusal is remembered for longer than an hour")
	}
	r.note(digest(last), "worse", end)
	if reason, _ := r.find(digest(last), end); reason != "worse" || len(r.by) != maxRefusals {
		t.Errorf("refused again: %q, %d are remembered", reason, len(r.by))
	}
	r.note(digest(0), "bad", end.Add(2*refusedFor))
	if len(r.by) != 1 || r.order.Len() != 1 {
		t.Errorf("%d are remembered when all others have expired", len(r.by))
	}
}
