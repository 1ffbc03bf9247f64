package entity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

func (w *world) remembered() []string {
	if !w.remember {
		return nil
	}
	return []string{"tally"}
}

func (w *world) singletons(s sharding.ShardID) []sharding.EntityID {
	if !w.singleton || s != worldShard {
		return nil
	}
	return []sharding.EntityID{{Type: "tally", ID: "singleton"}}
}

func (w *world) living(s *livingScan) {
	s.read(context.Background(), w)
	w.livings = append(w.livings, s)
}

// recalled hands over the oldest read of ids.
func (w *world) recalled() {
	if len(w.livings) > 0 {
		s := w.livings[0]
		w.livings = w.livings[1:]
		w.core.event(&event{kind: evLiving, living: s})
	}
}

func (w *world) Living(_ context.Context, _ sharding.ShardID, _, after string, limit int) (ids []string, err error) {
	for _, id := range slices.Sorted(maps.Keys(w.heads)) {
		if h := w.heads[id]; h.lives && !h.resting && id > after && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// missing counts the entities that are to be in memory, and are neither there
// nor held back.
func (w *world) missing() (n int) {
	s := w.core.shard(worldShard)
	if !w.remember || w.bounded || w.core.opts.LaneBytes < 100 {
		return 0
	}
	for id, h := range w.heads {
		name := sharding.EntityID{Type: "tally", ID: id}
		e := s.entities.get(name, w.core.key(name))
		if _, held := s.memory.back[name]; h.lives && !h.resting && !held && (e == nil || e.phase != resident) {
			n++
		}
	}
	return n
}

// keeper is a world whose entities are remembered.
func keeper(t *testing.T) *world {
	w := quiet(t)
	w.remember = true
	w.core.opts.PassivateAfter = time.Second
	w.handOver()
	return w
}

// later lets time pass and what there is to start come in.
func (w *world) later(d time.Duration) {
	for range 100 {
		w.now = w.now.Add(d / 100)
		w.core.now = w.now
		w.core.expire()
		w.core.passivateIdle()
		w.recalled()
		for range rememberedAtOnce {
			w.core.pump()
			w.chunk()
		}
		w.core.pump()
		w.core.endTurn()
		w.commit()
	}
}

func (w *world) inMemory() (ids []string) {
	for _, e := range w.core.shard(worldShard).entities.all() {
		if e.phase == resident {
			ids = append(ids, e.id.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestRememberedEntitiesComeBack: after a change of leaders every entity that
// exists and was not let go is in memory, without being asked, and stays there
// however long nobody asks.
func TestRememberedEntitiesComeBack(t *testing.T) {
	w := keeper(t)
	const entities = 30
	for i := range entities {
		w.send(fmt.Sprintf("e%02d", i), Command, "add", fmt.Sprintf("c%d", i))
	}
	w.send("e00", Delete, "", "d")
	if res := w.send("e01", Passivate, "", ""); res.Err != nil {
		t.Fatal(res.Err)
	}
	w.send("e02", Passivate, "", "")
	w.send("e02", Command, "note", "awake")
	w.send("e99", Query, "sum", "") // is nothing
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
	if res := w.send("e01", Query, "sum", ""); string(res.Payload) != "1" {
		t.Errorf("a resting entity: %+v", res)
	}
}

// TestRememberedEntitiesAreStartedSlowly: no more than the rate says, and those
// of callers first.
func TestRememberedEntitiesAreStartedSlowly(t *testing.T) {
	w := keeper(t)
	for i := range 200 {
		w.send(fmt.Sprintf("e%03d", i), Command, "add", fmt.Sprintf("c%d", i))
	}
	w.core.opts.RememberRate = 10
	w.core.reminder.allowed = 0
	w.handOver()
	w.later(3 * time.Second)
	if n := len(w.inMemory()); n < 20 || n > 31 {
		t.Errorf("%d entities were started in 3 s at 10 a second", n)
	}
	if res := w.send("e199", Query, "sum", ""); string(res.Payload) != "1" {
		t.Errorf("a caller's: %+v", res)
	}
	w.later(30 * time.Second)
	if n := len(w.inMemory()); n != 200 {
		t.Errorf("%d entities are in memory in the end", n)
	}
}

// TestFailingEntitiesAreHeldBack: one that cannot be loaded is tried again ever
// more rarely, while the others come in, and comes in when it can.
func TestFailingEntitiesAreHeldBack(t *testing.T) {
	w := keeper(t)
	for i := range 20 {
		w.send(fmt.Sprintf("e%02d", i), Command, "add", fmt.Sprintf("c%d", i))
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
	w.core.opts.ParkFor = time.Millisecond
	w.send("e07", Clear, "", "")
	w.later(10 * time.Minute)
	if n := len(w.inMemory()); n != 20 {
		t.Errorf("%d entities are in memory in the end", n)
	}
}
