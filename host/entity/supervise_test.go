package entity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
)

// TestParkedEntitiesAreCleared: an entity that goes on faulting is parked, says
// so, and is served again once a person has cleared it.
func TestParkedEntitiesAreCleared(t *testing.T) {
	w := quiet(t)
	w.core.opts.ParkFor = time.Hour
	w.ask(Command, "add", "a")
	for i := range 3 {
		var fault *GuestFaultError
		if res := w.ask(Command, "trap", fmt.Sprintf("t%d", i)); !errors.As(res.Err, &fault) {
			t.Fatalf("fault %d: %v", i, res.Err)
		}
	}
	if res := w.ask(Command, "add", "b"); !errors.Is(res.Err, ErrParked) {
		t.Fatalf("a parked entity: %+v", res)
	}
	if res := w.ask(Inspect, "", ""); res.Info.Status != "parked" || res.Info.Faults != 3 || res.Info.LastErr == "" {
		t.Fatalf("a parked entity: %+v", res.Info)
	}
	if res := w.ask(Clear, "", ""); res.Err != nil || res.Info.Status != "passive" || res.Info.Faults != 0 {
		t.Fatalf("cleared: %+v", res)
	}
	if res := w.ask(Command, "add", "c"); res.Err != nil || res.Sequence != 2 {
		t.Fatalf("after that: %+v", res)
	}
}

// TestSkippedTimersNeverFire: a person cancels a timer whose command always
// faults; the journal shows it, and the same request again does nothing more.
func TestSkippedTimersNeverFire(t *testing.T) {
	w := quiet(t)
	w.alarm = &abi.Timer{Name: []byte("bad"), Due: 1, Command: []byte("trap"), Payload: []byte("1")}
	w.ask(Command, "alarm", "a")
	for range 20 {
		w.found()
		w.core.pump()
		w.core.endTurn()
		w.now = w.now.Add(time.Second)
		w.core.now = w.now
	}
	if w.core.stats.Faults == 0 || len(w.timers) != 1 {
		t.Fatalf("%d faults, timers %v: the test shows nothing", w.core.stats.Faults, w.timers)
	}
	w.ask(Clear, "", "")
	for range 2 {
		if res := w.ask(SkipTimer, "bad", "by-ann"); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	last := &w.log[len(w.log)-1]
	if len(w.timers) != 0 || last.CommandID != "by-ann" || w.log[len(w.log)-2].CommandID == "by-ann" {
		t.Errorf("timers %v, the last record is %s", w.timers, last.CommandID)
	}
}
