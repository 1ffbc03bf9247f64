package stall

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestProcessPausesAreCounted: a process that runs on time has no pauses. A pause is
// noticed by the first call after it and counted once.
func TestProcessPausesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewPauseWatch()
		ctx, stop := context.WithCancel(t.Context())
		go w.Run(ctx)
		time.Sleep(time.Hour)
		if n := w.Epoch(); n != 0 || w.Settling() {
			t.Fatalf("%d pauses of a process that ran", n)
		}
		stop() // nothing looks at the clocks, as in a paused process
		synctest.Wait()
		time.Sleep(pauseLimit)
		if n := w.Epoch(); n != 1 || !w.Settling() {
			t.Fatalf("%d pauses, settling %v, after one", n, w.Settling())
		}
		time.Sleep(settle)
		if w.Epoch() != 1 || w.Settling() {
			t.Fatal("the pause is counted again, or never settles")
		}
		time.Sleep(pauseLimit - time.Millisecond)
		if n := w.Epoch(); n != 2 {
			t.Fatalf("%d pauses after a second one", n)
		}
	})
	var none *PauseWatch
	if none.Epoch() != 0 || none.Settling() {
		t.Error("no watch has seen a pause")
	}
}

func BenchmarkEpoch(b *testing.B) {
	w := NewPauseWatch()
	b.ReportAllocs()
	for b.Loop() {
		w.look()
		_ = w.Epoch()
	}
}
