package entity

import (
	"errors"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
)

// TestInternalCommandOfClientIsRejected checks that internal commands of
// clients are rejected without a guest call, whether or not the id is known,
// and that internal commands of entities and timers are executed.
func TestInternalCommandOfClientIsRejected(t *testing.T) {
	w := quiet(t)
	w.ask(request.Command, "add", "before")
	w.handOver()
	w.typ.Internal = map[string]bool{"note": true, "add": true}
	guests, records := w.open, len(w.log)
	refused := func(where, name, id string) {
		t.Helper()
		if res := w.ask(request.Command, name, id); !errors.Is(res.Err, request.ErrInternalCommand) || len(w.log) != records {
			t.Errorf("%s: %+v, %d records", where, res, len(w.log)-records)
		}
	}
	refused("an entity that is not in memory", "note", "a")
	refused("a retry of an executed command", "add", "before")
	if w.open != guests {
		t.Errorf("%d guests were made", w.open-guests)
	}
	w.ask(request.Query, "sum", "")
	refused("an entity in memory", "note", "b")
	refused("a retry at an entity in memory", "add", "before")

	got := w.flood(1)
	w.alarm = &abi.Timer{Name: []byte("later"), Due: 1, Command: []byte("add"), Payload: []byte("1")}
	if res := w.ask(request.Command, "alarm", "c"); res.Err != nil {
		t.Fatal(res.Err)
	}
	for n := 0; len(w.timers) > 0 || got[0].got == nil; n++ {
		if n == 1000 {
			t.Fatalf("timers %v, the delivery %+v", w.timers, got[0].got)
		}
		w.found()
		w.core.runTurns()
		w.core.endTurn()
		w.commit()
		w.reply()
		w.now = w.now.Add(time.Second)
		w.core.now = w.now
	}
	if got[0].got.Err != nil {
		t.Errorf("a delivery: %+v", got[0].got)
	}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "2" {
		t.Errorf("the timer's command was not executed: %+v", res)
	}
}
