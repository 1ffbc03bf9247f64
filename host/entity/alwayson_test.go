package entity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

func (w *world) AlwaysOn() []string {
	if !w.autostart {
		return nil
	}
	return []string{"tally"}
}

func (w *world) Singletons(s sharding.ShardID) []sharding.EntityID {
	if !w.singleton || s != worldShard {
		return nil
	}
	return []sharding.EntityID{{Type: "tally", ID: "singleton"}}
}

func (w *world) existing(s *alwaysOnScan) {
	s.Do(context.Background(), w)
	w.existings = append(w.existings, s)
}

// existingFound delivers the result of the oldest pending scan for existing
// ids.
func (w *world) existingFound() {
	if len(w.existings) > 0 {
		s := w.existings[0]
		w.existings = w.existings[1:]
		w.core.event(&coreEvent{Kind: existingRead, existing: s})
	}
}

func (w *world) ListExisting(_ context.Context, _ sharding.ShardID, _, after string, limit int) (ids []string, err error) {
	for _, id := range slices.Sorted(maps.Keys(w.heads)) {
		if h := w.heads[id]; h.exists && !h.stopped && id > after && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// missing counts the entities that should be in memory but are not, except
// those that are held back after a failure.
func (w *world) missing() (n int) {
	s := w.core.shard(worldShard)
	if !w.autostart || w.bounded || w.core.opts.ExecutorBytes < 100 {
		return 0
	}
	for id, h := range w.heads {
		name := sharding.EntityID{Type: "tally", ID: id}
		e := s.entities.Get(name, w.core.key(name))
		if waits := s.starts != nil && s.starts.IsHeldBack(name); h.exists && !h.stopped && !waits && (e == nil || e.phase != inMemory) {
			n++
		}
	}
	return n
}

// keeper returns a world with an always-on type.
func keeper(t *testing.T) *world {
	w := quiet(t)
	w.autostart = true
	w.core.opts.PassivateAfter = time.Second
	w.handOver()
	return w
}

// later advances the clock and starts the entities that are due.
func (w *world) later(d time.Duration) {
	for range 100 {
		w.now = w.now.Add(d / 100)
		w.core.now = w.now
		w.core.expire()
		w.core.residents.passivateIdle()
		w.existingFound()
		for range startsAtOnce {
			w.core.runTurns()
			w.chunk()
		}
		w.core.runTurns()
		w.core.endTurn()
		w.commit()
	}
}

func (w *world) inMemory() (ids []string) {
	for _, e := range w.core.shard(worldShard).entities.All() {
		if e.phase == inMemory {
			ids = append(ids, e.id.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestAlwaysOnEntitiesRestartAfterLeaderChange checks that after a change of
// the leader every existing entity that is not stopped is loaded without a
// request, and stays in memory while it is idle.
func TestAlwaysOnEntitiesRestartAfterLeaderChange(t *testing.T) {
	w := keeper(t)
	const entities = 30
	for i := range entities {
		w.askOf(fmt.Sprintf("e%02d", i), request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.askOf("e00", request.Delete, "", "d")
	if res := w.askOf("e01", request.Passivate, "", ""); res.Err != nil {
		t.Fatal(res.Err)
	}
	w.askOf("e02", request.Passivate, "", "")
	w.askOf("e02", request.Command, "note", "awake")
	w.askOf("e99", request.Query, "sum", "") // the entity does not exist
	records := len(w.log)
	for range 2 {
		w.handOver()
		w.later(10 * time.Second)
		in := w.inMemory()
		if len(in) != entities-2 || slices.Contains(in, "e00") || slices.Contains(in, "e01") {
			t.Fatalf("in memory: %v", in)
		}
	}
	if len(w.log) != records {
		t.Errorf("%d records were written", len(w.log)-records)
	}
	if res := w.askOf("e01", request.Query, "sum", ""); string(res.Payload) != "1" {
		t.Errorf("a stopped entity: %+v", res)
	}
}

// TestAlwaysOnStartsAreRateLimited checks that always-on entities are started
// at the configured rate, and that entities for which callers wait come first.
func TestAlwaysOnStartsAreRateLimited(t *testing.T) {
	w := keeper(t)
	for i := range 200 {
		w.askOf(fmt.Sprintf("e%03d", i), request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.core.alwaysOn = newAlwaysOnStarter(alwaysOnOptions{Rate: 10, Types: w, Listed: true}, parts{w.core})
	w.handOver()
	w.later(time.Second) // at most one burst of unused starts accumulates
	began := len(w.inMemory())
	w.later(3 * time.Second)
	if n := len(w.inMemory()) - began; began > 80 || n < 20 || n > 31 {
		t.Errorf("%d entities were started at once, and %d in 3 s at 10 a second", began, n)
	}
	if res := w.askOf("e199", request.Query, "sum", ""); string(res.Payload) != "1" {
		t.Errorf("a caller's: %+v", res)
	}
	w.later(30 * time.Second)
	if n := len(w.inMemory()); n != 200 {
		t.Errorf("%d entities are in memory in the end", n)
	}
}

// TestFailedAlwaysOnLoadsBackOff checks that an entity that cannot be loaded is
// retried at growing intervals while other entities are started, and that it is
// started once it can be loaded.
func TestFailedAlwaysOnLoadsBackOff(t *testing.T) {
	w := keeper(t)
	for i := range 20 {
		w.askOf(fmt.Sprintf("e%02d", i), request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.poison = "e07"
	w.handOver()
	w.later(30 * time.Second)
	if in := w.inMemory(); len(in) != 19 || slices.Contains(in, "e07") {
		t.Fatalf("in memory: %v", in)
	}
	loads := w.core.stats.Loads
	w.later(10 * time.Minute)
	if n := w.core.stats.Loads - loads; n < 2 || n > 10 {
		t.Errorf("it was tried %d times in 10 minutes", n)
	}
	w.poison = ""
	w.core.opts.QuarantineFor = time.Millisecond
	w.askOf("e07", request.Clear, "", "")
	w.later(10 * time.Minute)
	if n := len(w.inMemory()); n != 20 {
		t.Errorf("%d entities are in memory in the end", n)
	}
}

// TestQuarantinedSingletonLeavesStartsToOthers checks that a quarantined
// singleton, which must be in memory but cannot be started, does not use up the
// allowance with which the executor starts its other always-on entities. The
// singleton is started again after its quarantine.
func TestQuarantinedSingletonLeavesStartsToOthers(t *testing.T) {
	for _, full := range []bool{false, true} {
		w := keeper(t)
		w.typ.Singleton, w.singleton = true, true
		w.core.opts.QuarantineFor = 30 * time.Second
		if full { // other entities have taken all places for retries
			s := w.core.shard(worldShard).starts
			for i := range heldBackMost {
				s.holdBack(sharding.EntityID{Type: "tally", ID: fmt.Sprint(i)}, w.now.Add(24*time.Hour).UnixNano())
			}
		}
		for i := range w.core.opts.QuarantineAfterFaults {
			w.askOf("singleton", request.Command, "trap", fmt.Sprintf("t%d", i))
		}
		if w.core.stats.Quarantines != 1 {
			t.Fatalf("%d entities are quarantined, want the singleton", w.core.stats.Quarantines)
		}
		w.later(time.Second)
		if n := w.core.alwaysOn.allowed; n < burst-1 {
			t.Errorf("places for retries taken %v: %d of %d starts are left", full, n, burst)
		}
		w.later(time.Minute)
		if in := w.inMemory(); len(in) != 1 {
			t.Errorf("after the quarantine the singleton is not in memory")
		}
	}
}
