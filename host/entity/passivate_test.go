package entity

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestIdleEntitiesLeaveMemory: a lane with nothing to do still lets idle
// entities go, and the instances that are empty then; the next request finds
// the entity as it was.
func TestIdleEntitiesLeaveMemory(t *testing.T) {
	log := &committer{in: make(chan Applied, 1<<10), done: make(chan struct{}), records: map[sharding.EntityID][]journal.Record{}}
	var slept atomic.Int64
	typ := &Type{Name: "t", PassivateAfter: 20 * time.Millisecond, Instantiate: func(context.Context) (Guest, error) {
		return &sleeper{t: t, sums: map[uint64]int64{}, slept: &slept}, nil
	}}
	lane := NewLane(Options{Journal: log, Histories: log, Types: oneType{typ}}, nil)
	log.lane = lane
	go log.run()
	lane.LeaderChanged(1, 1, true)
	lane.Applied([]Applied{{Shard: 1, Term: 1, NoOp: true}})
	for !lane.leads(1) {
		time.Sleep(time.Millisecond)
	}
	for life := 1; life <= 3; life++ {
		var a answers
		a.wg.Add(1)
		lane.Submit([]*Request{{
			Entity: sharding.EntityID{Type: "t", ID: "x"}, Shard: 1, Name: "add", Payload: []byte("1"),
			ID: journal.CommandID(strconv.Itoa(life)), ExpectedSequence: NoExpectation, Done: &a,
		}})
		a.wg.Wait()
		if res := a.got[0].Result; res.Err != nil || string(res.Payload) != strconv.Itoa(life) {
			t.Fatalf("life %d: %q %v", life, res.Payload, res.Err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			st := lane.Stats()
			if st.Passivations >= uint64(life) && st.Resident == 0 && st.Instances == 0 && st.Entities == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("life %d does not end: %+v", life, st)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := lane.Close(ctx); err != nil {
		t.Fatal(err)
	}
	close(log.in)
	<-log.done
}

// TestMemoryBudgetKeepsWhatIsAskedFor: in a lane that is short of memory, the
// entities that are asked for again and again stay while many pass through.
func TestMemoryBudgetKeepsWhatIsAskedFor(t *testing.T) {
	w := quiet(t)
	w.core.opts.InstanceBytes, w.core.opts.LaneBytes = 40, 39 // one instance of 40 entities
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
	if again := w.core.stats.Loads - loads; again > 1 {
		t.Errorf("%d of 10 hot entities had left", again)
	}
	if st := w.core.stats; st.Shed < 300 || len(w.core.instances) != 1 || w.core.instances[0].bytes > 41 {
		t.Errorf("%d shed, %d instances, %d bytes", st.Shed, len(w.core.instances), w.core.instances[0].bytes)
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// tell sends one command to an entity.
func (w *world) tell(entity string) {
	w.t.Helper()
	w.number++
	if res := w.send(entity, Command, "add", strconv.Itoa(w.number)); res.Err != nil {
		w.t.Fatal(res.Err)
	}
}

// TestPassivateOnRequest: the entity leaves after what was asked before it and
// is there again for what comes after; one that is not in memory is not loaded.
func TestPassivateOnRequest(t *testing.T) {
	w := quiet(t)
	if res := w.ask(Passivate, "", ""); res.Err != nil || w.core.stats.Loads != 0 || w.core.known != 0 {
		t.Fatalf("%+v, %d loads", res, w.core.stats.Loads)
	}
	w.ask(Command, "add", "a")
	if res := w.ask(Passivate, "", ""); res.Err != nil || w.core.residents.cache.count != 0 || w.core.known != 0 {
		t.Fatalf("%+v, %d resident", res, w.core.residents.cache.count)
	}
	if res := w.ask(Command, "add", "b"); res.Err != nil || string(res.Payload) != "2" || w.core.stats.Loads != 2 {
		t.Fatalf("%+v, %d loads", res, w.core.stats.Loads)
	}
}

// TestIdleTimesAreSetLive: what is set in the place of a type's own idle time
// holds for those that are in memory already, and back again.
func TestIdleTimesAreSetLive(t *testing.T) {
	w := quiet(t)
	var set time.Duration
	w.core.opts.PassivateAfter = time.Hour
	w.core.opts.IdleAfter = func(string) (time.Duration, bool) { return set, set != 0 }
	for i := range 5 {
		w.send(strconv.Itoa(i), Command, "add", "c"+strconv.Itoa(i))
	}
	change := func(d time.Duration) {
		set = d
		w.core.event(&event{kind: evIdleTimes})
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
	w.send("0", Query, "sum", "")
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
