package entity

import (
	"strconv"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
)

// TestMemoryBudgetKeepsFrequentlyUsedEntities checks that in an executor that
// is short of memory, frequently used entities stay while many other entities
// are loaded and evicted.
func TestMemoryBudgetKeepsFrequentlyUsedEntities(t *testing.T) {
	w := quiet(t)
	w.core.opts.InstanceBytes, w.core.opts.ExecutorBytes = 40, 39 // room for one instance with 40 entities
	for round := range 40 {
		for i := range 10 {
			w.tell("hot" + strconv.Itoa(i))
		}
		for i := range 10 {
			w.tell("cold" + strconv.Itoa(round*10+i))
		}
		w.now = w.now.Add(time.Second)
	}
	loads := w.core.stats.Loads
	for i := range 10 {
		w.tell("hot" + strconv.Itoa(i))
	}
	if reloads := w.core.stats.Loads - loads; reloads > 1 {
		t.Errorf("%d of 10 hot entities had left", reloads)
	}
	if st := w.core.stats; st.Shed < 300 || len(w.core.residents.pools.All()) != 1 || w.core.residents.pools.All()[0].Bytes() > 41 {
		t.Errorf("%d shed, %d instances, %d bytes", st.Shed, len(w.core.residents.pools.All()), w.core.residents.pools.All()[0].Bytes())
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// tell sends a command to an entity.
func (w *world) tell(entity string) {
	w.t.Helper()
	w.number++
	if res := w.askOf(entity, request.Command, "add", strconv.Itoa(w.number)); res.Err != nil {
		w.t.Fatal(res.Err)
	}
}

// TestPassivateOnRequest checks that the entity leaves after earlier requests
// and is loaded for later requests, and that an entity outside memory is not
// loaded.
func TestPassivateOnRequest(t *testing.T) {
	w := quiet(t)
	if res := w.ask(request.Passivate, "", ""); res.Err != nil || w.core.stats.Loads != 0 || w.core.residents.known != 0 {
		t.Fatalf("%+v, %d loads", res, w.core.stats.Loads)
	}
	w.ask(request.Command, "add", "a")
	if res := w.ask(request.Passivate, "", ""); res.Err != nil || w.core.residents.cache.Count() != 0 || w.core.residents.known != 0 {
		t.Fatalf("%+v, %d resident", res, w.core.residents.cache.Count())
	}
	if res := w.ask(request.Command, "add", "b"); res.Err != nil || string(res.Payload) != "2" || w.core.stats.Loads != 2 {
		t.Fatalf("%+v, %d loads", res, w.core.stats.Loads)
	}
}

// TestIdleTimeOverrideAppliesImmediately checks that an override of the idle time, and its
// removal, apply to entities already in memory.
func TestIdleTimeOverrideAppliesImmediately(t *testing.T) {
	w := quiet(t)
	set := &testSettings{}
	w.core.opts.PassivateAfter, w.core.opts.Settings = time.Hour, set
	for i := range 5 {
		w.askOf(strconv.Itoa(i), request.Command, "add", "c"+strconv.Itoa(i))
	}
	change := func(d time.Duration) {
		set.idle = d
		w.core.event(&coreEvent{Kind: eventIdleTimesChanged})
	}
	w.later(10 * time.Minute)
	if n := len(w.inMemory()); n != 5 {
		t.Fatalf("%d are in memory before their time", n)
	}
	change(time.Minute)
	w.later(time.Second)
	if n := len(w.inMemory()); n != 0 {
		t.Errorf("%d are in memory after the time was made shorter", n)
	}
	change(-1)
	w.askOf("0", request.Query, "sum", "")
	w.later(10 * time.Hour)
	if n := len(w.inMemory()); n != 1 {
		t.Errorf("%d are in memory that are never to leave", n)
	}
	change(0)
	w.later(time.Second)
	if n := len(w.inMemory()); n != 0 {
		t.Errorf("%d are in memory after the setting was taken back", n)
	}
}
