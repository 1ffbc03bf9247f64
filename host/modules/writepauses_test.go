package modules

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/sharding/meta"
)

// TestOverdueWritePauseIsEnded checks that an overdue write pause is ended,
// because its holder may have stopped. The type then continues under a
// different revision, which the holder does not know. A pause that began
// meanwhile is not affected.
func TestOverdueWritePauseIsEnded(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newSignedWorld(t, signing.Off)
	r := &Rollouts{now: func() time.Time { return now }, held: map[string]pausedSince{}}
	w.do(meta.PauseTypeWrites("a", 1))
	pass := func(after time.Duration, want string) {
		t.Helper()
		now = now.Add(after)
		for _, b := range r.overdue(w.state.View()) {
			w.do(meta.ResumeTypeWrites(b.EntityType, b.PausedSince))
		}
		b, _ := w.state.View().Activation("a")
		if got := fmt.Sprintf("%d held %d", b.Revision, b.PausedSince); got != want {
			t.Fatalf("after %v: %s, want %s", after, got, want)
		}
	}
	pass(0, "1 held 2")
	pass(2*pauseTime, "1 held 2")
	w.do(meta.ResumeTypeWrites("a", 2), meta.PauseTypeWrites("a", 3))
	pass(time.Second, "3 held 4")
	pass(2*pauseTime, "3 held 4")
	pass(time.Second, "5 held 0")
	pass(3*pauseTime, "5 held 0")
	if len(r.held) > 0 {
		t.Errorf("it remembers %+v", r.held)
	}
}
