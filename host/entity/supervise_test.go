package entity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
)

// TestQuarantinedEntityIsServedAfterClear checks that an entity that continues to fault is
// quarantined, reports it, and is served again after an operator has cleared
// it.
func TestQuarantinedEntityIsServedAfterClear(t *testing.T) {
	w := quiet(t)
	w.core.opts.QuarantineFor = time.Hour
	w.ask(request.Command, "add", "a")
	for i := range 3 {
		var fault *request.GuestFaultError
		if res := w.ask(request.Command, "trap", fmt.Sprintf("t%d", i)); !errors.As(res.Err, &fault) {
			t.Fatalf("fault %d: %v", i, res.Err)
		}
	}
	if res := w.ask(request.Command, "add", "b"); !errors.Is(res.Err, request.ErrQuarantined) || w.core.stats.Quarantines != 1 {
		t.Fatalf("a quarantined entity: %+v", res)
	}
	if res := w.ask(request.Inspect, "", ""); res.Info.Status != "quarantined" || res.Info.Faults != 3 || res.Info.LastErr == "" ||
		!res.Info.QuarantinedUntil.Equal(w.core.now.Add(time.Hour)) {
		t.Fatalf("a quarantined entity: %+v", res.Info)
	}
	if res := w.ask(request.Clear, "", ""); res.Err != nil || res.Info.Status != "passive" || res.Info.Faults != 0 {
		t.Fatalf("cleared: %+v", res)
	}
	if res := w.ask(request.Command, "add", "c"); res.Err != nil || res.Sequence != 2 {
		t.Fatalf("after that: %+v", res)
	}
}

// TestNewActivationReleasesQuarantinedEntity checks that a new activation, with
// another module or other limits, releases an entity, and that the entity is
// quarantined again only after the full number of faults.
func TestNewActivationReleasesQuarantinedEntity(t *testing.T) {
	w := quiet(t)
	w.core.opts.QuarantineFor = time.Hour
	w.ask(request.Command, "add", "a")
	status := func() string { return w.ask(request.Inspect, "", "").Info.Status }
	trap := func(times int, name string) {
		t.Helper()
		for i := range times {
			var fault *request.GuestFaultError
			if res := w.ask(request.Command, "trap", fmt.Sprint(name, i)); !errors.As(res.Err, &fault) {
				t.Fatalf("fault %d: %v", i, res.Err)
			}
		}
	}
	listed := func() int {
		t.Helper()
		ids, err := (&coreTurns{core: w.core}).ListQuarantined(QuarantineQuery{Shard: worldShard, Type: "tally", Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		return len(ids)
	}
	trap(3, "t")
	if status() != "quarantined" || listed() != 1 {
		t.Fatalf("it is %s, %d are listed", status(), listed())
	}
	w.serve(w.newest + 2)
	if status() == "quarantined" || listed() != 0 {
		t.Errorf("under a different module it is %s, %d are listed", status(), listed())
	}
	trap(2, "u")
	if status() == "quarantined" {
		t.Error("it is quarantined for faults under a different module")
	}
	trap(1, "v")
	if res := w.ask(request.Inspect, "", ""); res.Info.Status != "quarantined" || res.Info.Faults != 3 || !res.Info.QuarantinedUntil.Equal(w.core.now.Add(time.Hour)) || listed() != 1 {
		t.Errorf("after as many faults again: %+v", res.Info)
	}
	w.serve(w.newest + 1) // activates the same module with other limits
	if res := w.ask(request.Command, "add", "b"); res.Err != nil {
		t.Errorf("a command: %+v", res)
	}
	if res := w.ask(request.Inspect, "", ""); res.Info.Faults != 0 || res.Info.Status == "quarantined" {
		t.Errorf("in the end: %+v", res.Info)
	}
}

// TestSkippedTimerNeverFires checks that an operator can cancel a timer whose
// command always faults, that the journal records the cancellation, and that
// a retry has no further effect.
func TestSkippedTimerNeverFires(t *testing.T) {
	w := quiet(t)
	w.alarm = &abi.Timer{Name: []byte("bad"), Due: 1, Command: []byte("trap"), Payload: []byte("1")}
	w.ask(request.Command, "alarm", "a")
	for range 20 {
		w.found()
		w.core.runTurns()
		w.core.endTurn()
		w.now = w.now.Add(time.Second)
		w.core.now = w.now
	}
	if w.core.stats.Faults == 0 || len(w.timers) != 1 {
		t.Fatalf("%d faults, timers %v: the test shows nothing", w.core.stats.Faults, w.timers)
	}
	w.ask(request.Clear, "", "")
	for range 2 {
		if res := w.ask(request.SkipTimer, "bad", "by-ann"); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	last := &w.log[len(w.log)-1]
	if len(w.timers) != 0 || last.CommandID != "by-ann" || w.log[len(w.log)-2].CommandID == "by-ann" {
		t.Errorf("timers %v, the last record is %s", w.timers, last.CommandID)
	}
}

// TestTimerOfQuarantinedEntityCanBeSkipped checks that a timer of a quarantined entity can be
// skipped, and the entity deleted, while its commands are still rejected.
func TestTimerOfQuarantinedEntityCanBeSkipped(t *testing.T) {
	w := quiet(t)
	w.core.opts.QuarantineFor = time.Hour
	w.alarm = &abi.Timer{Name: []byte("bad"), Due: 1, Command: []byte("trap"), Payload: []byte("1")}
	w.ask(request.Command, "alarm", "a")
	for range 300 {
		w.found()
		w.core.runTurns()
		w.core.endTurn()
		w.now = w.now.Add(time.Second)
		w.core.now = w.now
		if w.ask(request.Inspect, "", "").Info.Status == "quarantined" {
			break
		}
	}
	if res := w.ask(request.Command, "add", "b"); !errors.Is(res.Err, request.ErrQuarantined) {
		t.Fatalf("the entity is not quarantined: %+v", res)
	}
	if res := w.ask(request.SkipTimer, "bad", "by-ann"); res.Err != nil || len(w.timers) != 0 {
		t.Fatalf("skip its timer: %+v, timers %v", res, w.timers)
	}
	if last := &w.log[len(w.log)-1]; last.CommandID != "by-ann" {
		t.Errorf("the last record is %s", last.CommandID)
	}
	if res := w.ask(request.Command, "add", "c"); res.Err != nil {
		t.Errorf("after that: %+v", res)
	}
	if res := w.ask(request.Inspect, "", ""); res.Info.Faults != 0 || res.Info.Status == "quarantined" {
		t.Errorf("after that: %+v", res.Info)
	}
}

// TestQuarantineTimeDoubles checks that a further fault doubles the quarantine, up to
// a bound, and that a successful command resets it.
func TestQuarantineTimeDoubles(t *testing.T) {
	w := quiet(t)
	w.core.opts.QuarantineFor = time.Second
	w.ask(request.Command, "add", "a")
	trap := func(n int) {
		t.Helper()
		var fault *request.GuestFaultError
		if res := w.ask(request.Command, "trap", fmt.Sprint("t", n)); !errors.As(res.Err, &fault) {
			t.Fatalf("fault %d: %v", n, res.Err)
		}
	}
	trap(0)
	trap(1)
	want := time.Second
	for n := range 14 {
		trap(2 + n)
		if res := w.ask(request.Inspect, "", ""); res.Info.Status != "quarantined" || res.Info.QuarantinedUntil.Sub(w.core.now) != want {
			t.Fatalf("after %d faults: %+v, want %v from %v", 3+n, res.Info, want, w.core.now)
		}
		w.now = w.now.Add(want - 1)
		w.core.now = w.now
		if res := w.ask(request.Command, "add", fmt.Sprint("early", n)); !errors.Is(res.Err, request.ErrQuarantined) {
			t.Fatalf("just before the end: %+v", res)
		}
		w.now = w.now.Add(1)
		w.core.now = w.now
		want = min(2*want, 1024*time.Second)
	}
	if res := w.ask(request.Command, "add", "z"); res.Err != nil {
		t.Fatal(res.Err)
	}
	if res := w.ask(request.Inspect, "", ""); res.Info.Faults != 0 || !res.Info.QuarantinedUntil.IsZero() {
		t.Errorf("in the end: %+v", res.Info)
	}
}
