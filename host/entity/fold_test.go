package entity

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

// TestFoldKeepsAll: whatever an entity is, it is the same when it comes back.
// A field that is added to entity and not to its record is found here.
func TestFoldKeepsAll(t *testing.T) {
	ignored := map[string]bool{ // by what else a fold does
		"phase": true, "queued": true, "blocked": true, "held": true, "idling": true, "seg": true,
		"place": true, "idler": true, "last": true, "waiting": true, "rest": true,
	}
	j := crowd(1, 3)
	c, s := j.core, j.core.shard(worldShard)
	e := s.entities.all()[0]
	e.asleep, e.costly, e.replay = true, true, replay{5, 6, 7}
	was := *e
	v := reflect.ValueOf(was)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !ignored[name] && v.Field(i).IsZero() && name != "handle" {
			t.Errorf("%s is not set: the test does not see whether it is kept", name)
		}
	}
	if !c.foldable(e) || !c.fold(c.residents.idle["counter"], e) {
		t.Fatal("it does not fold")
	}
	if s.entities.len != 0 || s.folds.len != 1 || c.known != 1 {
		t.Fatalf("%d entities, %d folded, %d known", s.entities.len, s.folds.len, c.known)
	}
	if c.find(s, sharding.EntityID{Type: "counte", ID: was.id.ID}, was.key) != nil {
		t.Error("it is found under the name of another type")
	}
	got := c.find(s, was.id, was.key)
	if got == nil {
		t.Fatal("it is not found")
	}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if a, b := fmt.Sprint(v.Field(i)), fmt.Sprint(reflect.ValueOf(*got).Field(i)); !ignored[name] && a != b {
			t.Errorf("%s is %s, was %s", name, b, a)
		}
	}
	if !got.restful() || got.inst.entities[got.handle] != got {
		t.Error("it is not in its instance")
	}
}

// TestFoldedPages: while entities are folded, asked for and let go of at
// random, what is folded fills a good part of the pages, and in the end none
// is left.
func TestFoldedPages(t *testing.T) {
	const entities = 6000
	j := crowd(entities, 2)
	c, s := j.core, j.core.shard(worldShard)
	c.opts.PassivateAfter, c.opts.FoldAfter = time.Hour, 2*time.Second
	c.idleTimesMoved()
	rnd := rand.New(rand.NewPCG(7, 8))
	sweep := func(d time.Duration) {
		c.now = c.now.Add(d)
		for c.sweepAt != 0 && c.sweepAt <= c.now.UnixNano() {
			c.passivateIdle()
			c.now = c.now.Add(1)
		}
	}
	ask := func(kind Kind, i int) {
		r := &Request{Kind: kind, Name: "total", Shard: worldShard, Done: j, Entity: sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}}
		if j.turn([]*Request{r}); r.Result.Err != nil {
			t.Fatal(r.Result.Err)
		}
	}
	sweep(3 * time.Second)
	if s.folds.len != entities || s.entities.len != 0 {
		t.Fatalf("%d of %d are folded", s.folds.len, entities)
	}
	most := 0
	for round := range 300 {
		for range 100 {
			ask(Query, rnd.IntN(entities))
		}
		if round%3 == 0 {
			sweep(3 * time.Second)
		}
		used, live := 0, 0
		for _, pg := range c.pages.all {
			if pg != nil {
				used, live = used+pageBytes, live+pg.live
			}
		}
		most = max(most, used)
		if used > 2*live+4*pageBytes {
			t.Fatalf("round %d: %d bytes of pages for %d of records", round, used, live)
		}
		if n := c.residents.cache.count + c.residents.cache.apart; n != entities || c.known != entities || s.folds.len+s.entities.len != entities {
			t.Fatalf("round %d: %d in memory, %d known, %d folded", round, n, c.known, s.folds.len)
		}
	}
	for i := range entities / 2 {
		ask(Passivate, 2*i)
	}
	sweep(3 * time.Second)
	for i := range entities {
		e := c.find(s, sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}, c.key(sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}))
		if (e != nil) != (i%2 == 1) || e != nil && (e.sequence != 2 || e.seen.count() != 2) {
			t.Fatalf("entity %d: %+v", i, e)
		}
	}
	sweep(3 * time.Second)
	sweep(2 * time.Hour)
	if len(c.pages.all)-len(c.pages.free) > 1 || c.known != 0 || len(c.residents.idle) != 0 || c.residents.cache.apart != 0 {
		t.Errorf("%d pages, %d free, %d entities known after all have left", len(c.pages.all)-1, len(c.pages.free), c.known)
	}
	t.Logf("at most %d KiB of pages", most>>10)
}

// TestFoldedEntitiesEndWithTheLane: nothing of them is left, and what is not
// folded is let go of as ever.
func TestFoldedEntitiesEndWithTheLane(t *testing.T) {
	const entities = 500
	j := crowd(entities, 1)
	c, s := j.core, j.core.shard(worldShard)
	for _, e := range s.entities.all()[:entities-10] {
		if !c.fold(c.residents.idle["counter"], e) {
			t.Fatal("it does not fold")
		}
	}
	if s.folds.len != entities-10 || c.pages.bytes() == 0 {
		t.Fatalf("%d are folded, on %d bytes", s.folds.len, c.pages.bytes())
	}
	c.discardFolds()
	if s.folds.len != 0 || c.pages.bytes() != 0 || c.known != 10 || c.residents.cache.count != 10 || c.residents.cache.apart != 0 {
		t.Errorf("%d folded on %d bytes, %d known, %d and %d in memory", s.folds.len, c.pages.bytes(), c.known, c.residents.cache.count, c.residents.cache.apart)
	}
	if n := c.types.of("counter").resident.Load(); n != 10 {
		t.Errorf("%d are counted", n)
	}
	c.stepDown(s)
	if n, _ := c.usage(); n != 0 || c.known != 0 || len(c.residents.idle) != 0 {
		t.Errorf("%d instances, %d entities, %d types are left", n, c.known, len(c.residents.idle))
	}
}

// TestFoldedEntitiesLeaveWithTheirInstance: they are passive then, and whoever
// is asked for is loaded as it was.
func TestFoldedEntitiesLeaveWithTheirInstance(t *testing.T) {
	const entities = 500
	for _, unfolded := range []int{0, 10} {
		j := crowd(entities, 2)
		c, s := j.core, j.core.shard(worldShard)
		for _, e := range s.entities.all()[:entities-unfolded] {
			if !c.fold(c.residents.idle["counter"], e) {
				t.Fatal("it does not fold")
			}
		}
		if len(c.instances) != 1 {
			t.Fatalf("%d instances", len(c.instances))
		}
		c.closeInstance(c.instances[0])
		if s.folds.len != 0 || s.entities.len != 0 || c.known != 0 || c.pages.bytes() != 0 || len(c.residents.idle) != 0 {
			t.Errorf("%d folded, %d not, %d known, %d bytes, %d types", s.folds.len, s.entities.len, c.known, c.pages.bytes(), len(c.residents.idle))
		}
		if n := c.types.of("counter").resident.Load(); n != 0 || c.residents.cache.count+c.residents.cache.apart != 0 {
			t.Errorf("%d are counted, %d and %d in memory", n, c.residents.cache.count, c.residents.cache.apart)
		}
		r := &Request{Kind: Query, Name: "total", Shard: worldShard, Done: j, Entity: sharding.EntityID{Type: "counter", ID: "device-00000007"}}
		if j.turn([]*Request{r}); r.Result.Err != nil || c.residents.cache.count != 1 {
			t.Errorf("asked for again: %v, %d in memory", r.Result.Err, c.residents.cache.count)
		}
	}
}
