package entity

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
)

// TestFaultsExpireAfterAnHour checks that the executor forgets an entity
// outside memory an hour after its last fault or the end of its quarantine.
// Otherwise callers with new ids could make the executor grow without bound.
func TestFaultsExpireAfterAnHour(t *testing.T) {
	w := quiet(t)
	const once = 300
	for i := range once {
		w.askOf(fmt.Sprint(i), request.Command, "trap", fmt.Sprint(i))
	}
	w.core.opts.QuarantineFor = 2 * time.Hour
	for range w.core.opts.QuarantineAfterFaults {
		w.askOf("quarantined", request.Command, "trap", "p")
	}
	look := func(after time.Duration, want int) {
		t.Helper()
		w.now = w.now.Add(after)
		w.core.now = w.now
		w.core.faulted.Look(w.core.now)
		if w.core.residents.known != want || w.core.faulted.Len() != want {
			t.Fatalf("%d entities are known, %d for their faults, want %d", w.core.residents.known, w.core.faulted.Len(), want)
		}
	}
	look(59*time.Minute, once+1)
	look(2*time.Minute, 1)
	if res := w.askOf("quarantined", request.Command, "add", "q"); res.Err != request.ErrQuarantined {
		t.Fatalf("a quarantined entity: %+v", res)
	}
	look(time.Hour, 1)
	look(time.Hour, 0)
	if w.core.faulted.At() != 0 {
		t.Error("it is looked for faults that are not there")
	}
}

// TestFaultSetIsBounded tests a faultSet with one entity less than its limit,
// with as many entities as the limit, and with one more. Above the limit, the
// faults that would expire first are forgotten.
func TestFaultSetIsBounded(t *testing.T) {
	w := quiet(t)
	for i := range maxFaultyEntities + 1 {
		w.now = w.now.Add(time.Microsecond)
		w.askOf(fmt.Sprint(i), request.Command, "trap", fmt.Sprint(i))
		want := i + 1
		if want > maxFaultyEntities {
			want = maxFaultyEntities / 4 * 3
		}
		if w.core.residents.known != want {
			t.Fatalf("after %d entities that faulted %d are known, want %d", i+1, w.core.residents.known, want)
		}
	}
	for id, want := range map[string]int{"0": 0, fmt.Sprint(maxFaultyEntities): 1} {
		if res := w.askOf(id, request.Inspect, "", ""); res.Info.Faults != want {
			t.Errorf("entity %s has %d faults, want %d", id, res.Info.Faults, want)
		}
	}
}

// TestFaultsAreForgottenOnStepDown checks that faults are forgotten when the
// leadership ends.
func TestFaultsAreForgottenOnStepDown(t *testing.T) {
	w := quiet(t)
	w.ask(request.Command, "trap", "a")
	w.handOver()
	w.now = w.now.Add(2 * time.Hour)
	w.core.now = w.now
	w.core.faulted.Look(w.core.now)
	if n := w.core.faulted.Len(); n != 0 || w.core.residents.known != 0 {
		t.Errorf("%d entities are known for faults, %d at all", n, w.core.residents.known)
	}
}
