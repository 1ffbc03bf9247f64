package entity

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestHibernationPreservesEntities checks that an entity is unchanged after
// hibernation. The test fails if a field is added to entity and not to its
// record.
func TestHibernationPreservesEntities(t *testing.T) {
	ignored := map[string]bool{ // compared by means of other fields
		"phase": true, "waits": true, "seg": true,
		"place": true, "idler": true, "last": true, "waiting": true, "extra": true,
	}
	j := crowd(1, 3)
	c, s := j.core, j.core.shard(worldShard)
	e := s.entities.All()[0]
	e.stopped, e.costly, e.replay = true, true, historyReplay{Events: 5, Bytes: 6, Snapshot: 7}
	was := *e
	v := reflect.ValueOf(was)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !ignored[name] && v.Field(i).IsZero() && name != "handle" {
			t.Errorf("%s is not set: the test does not see whether it is kept", name)
		}
	}
	if !c.residents.canHibernate(e) || !c.residents.hibernate(c.residents.idle["counter"], e) {
		t.Fatal("it does not become dormant")
	}
	if s.entities.Len() != 0 || s.hibernated.Len() != 1 || c.residents.known != 1 {
		t.Fatalf("%d entities, %d dormant, %d known", s.entities.Len(), s.hibernated.Len(), c.residents.known)
	}
	if c.residents.find(s, sharding.EntityID{Type: "counte", ID: was.id.ID}, was.key) != nil {
		t.Error("it is found under a different type")
	}
	got := c.residents.find(s, was.id, was.key)
	if got == nil {
		t.Fatal("it is not found")
	}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if a, b := fmt.Sprint(v.Field(i)), fmt.Sprint(reflect.ValueOf(*got).Field(i)); !ignored[name] && a != b {
			t.Errorf("%s is %s, was %s", name, b, a)
		}
	}
	if !got.isIdle() || got.inst.Entities()[got.handle] != got {
		t.Error("it is not in its instance")
	}
}

// dormantPage is the size of a page of hibernated entities.
const dormantPage = 256 << 10

// TestHibernationFillsAndFreesPages hibernates, uses and evicts entities at
// random. It checks that the records fill most of their pages, and that all
// pages are freed at the end.
func TestHibernationFillsAndFreesPages(t *testing.T) {
	const entities = 9000 // more than fit into one part of a table
	j := crowd(entities, 2)
	c, s := j.core, j.core.shard(worldShard)
	c.opts.PassivateAfter, c.opts.HibernateAfter = time.Hour, 2*time.Second
	c.residents.updateIdleTimes()
	rnd := rand.New(rand.NewPCG(7, 8))
	sweep := func(d time.Duration) {
		c.now = c.now.Add(d)
		for c.residents.sweepAt != 0 && c.residents.sweepAt <= c.now.UnixNano() {
			c.residents.passivateIdle()
			c.now = c.now.Add(1)
		}
	}
	ask := func(kind request.Kind, i int) {
		r := &request.Request{Kind: kind, Name: "total", Shard: worldShard, Done: j, Entity: sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}}
		if j.turn([]*request.Request{r}); r.Result.Err != nil {
			t.Fatal(r.Result.Err)
		}
	}
	sweep(3 * time.Second)
	if s.hibernated.Len() != entities || s.entities.Len() != 0 {
		t.Fatalf("%d of %d are dormant", s.hibernated.Len(), entities)
	}
	most := 0
	for round := range 300 {
		for range 100 {
			ask(request.Query, rnd.IntN(entities))
		}
		if round%3 == 0 {
			sweep(3 * time.Second)
		}
		used, live := int(c.residents.hibernated.Bytes()), int(c.residents.hibernated.Live())
		most = max(most, used)
		if used > 2*live+4*dormantPage {
			t.Fatalf("round %d: %d bytes of pages for %d of records", round, used, live)
		}
		if n := c.residents.cache.Count() + c.residents.cache.HibernatedCount(); n != entities || c.residents.known != entities || s.hibernated.Len()+s.entities.Len() != entities {
			t.Fatalf("round %d: %d in memory, %d known, %d dormant", round, n, c.residents.known, s.hibernated.Len())
		}
	}
	for i := range entities / 2 {
		ask(request.Passivate, 2*i)
	}
	sweep(3 * time.Second)
	for i := range entities {
		e := c.residents.find(s, sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}, c.key(sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}))
		if (e != nil) != (i%2 == 1) || e != nil && (e.sequence != 2 || e.seen.Count() != 2) {
			t.Fatalf("entity %d: %+v", i, e)
		}
	}
	sweep(3 * time.Second)
	sweep(2 * time.Hour)
	if c.residents.hibernated.Bytes() != 0 || c.residents.known != 0 || len(c.residents.idle) != 0 || c.residents.cache.HibernatedCount() != 0 {
		t.Errorf("%d bytes of pages, %d entities known after all have left", c.residents.hibernated.Bytes(), c.residents.known)
	}
	t.Logf("at most %d KiB of pages", most>>10)
}

// TestCloseDiscardsHibernatedEntities checks that Close frees everything that
// hibernated entities use, and evicts the other entities as usual.
func TestCloseDiscardsHibernatedEntities(t *testing.T) {
	const entities = 500
	j := crowd(entities, 1)
	c, s := j.core, j.core.shard(worldShard)
	for _, e := range s.entities.All()[:entities-10] {
		if !c.residents.hibernate(c.residents.idle["counter"], e) {
			t.Fatal("it does not become dormant")
		}
	}
	if s.hibernated.Len() != entities-10 || c.residents.hibernated.Bytes() == 0 {
		t.Fatalf("%d are dormant, on %d bytes", s.hibernated.Len(), c.residents.hibernated.Bytes())
	}
	c.residents.discardHibernated()
	if s.hibernated.Len() != 0 || c.residents.hibernated.Bytes() != 0 || c.residents.known != 10 || c.residents.cache.Count() != 10 || c.residents.cache.HibernatedCount() != 0 {
		t.Errorf("%d dormant on %d bytes, %d known, %d and %d in memory", s.hibernated.Len(), c.residents.hibernated.Bytes(), c.residents.known, c.residents.cache.Count(), c.residents.cache.HibernatedCount())
	}
	if n := c.residents.types.Of("counter").Stats().Resident; n != 10 {
		t.Errorf("%d are counted", n)
	}
	c.stepDown(s)
	if n, _ := c.residents.usage(); n != 0 || c.residents.known != 0 || len(c.residents.idle) != 0 {
		t.Errorf("%d instances, %d entities, %d types are left", n, c.residents.known, len(c.residents.idle))
	}
}

// TestHibernatedEntitiesLeaveWithClosedInstance checks that hibernated entities
// leave memory when their instance is closed, and are unchanged when they are
// loaded again.
func TestHibernatedEntitiesLeaveWithClosedInstance(t *testing.T) {
	const entities = 500
	for _, awake := range []int{0, 10} {
		j := crowd(entities, 2)
		c, s := j.core, j.core.shard(worldShard)
		for _, e := range s.entities.All()[:entities-awake] {
			if !c.residents.hibernate(c.residents.idle["counter"], e) {
				t.Fatal("it does not become dormant")
			}
		}
		if len(c.residents.pools.All()) != 1 {
			t.Fatalf("%d instances", len(c.residents.pools.All()))
		}
		c.residents.closeInstance(c.residents.pools.All()[0])
		if s.hibernated.Len() != 0 || s.entities.Len() != 0 || c.residents.known != 0 || c.residents.hibernated.Bytes() != 0 || len(c.residents.idle) != 0 {
			t.Errorf("%d dormant, %d not, %d known, %d bytes, %d types", s.hibernated.Len(), s.entities.Len(), c.residents.known, c.residents.hibernated.Bytes(), len(c.residents.idle))
		}
		if n := c.residents.types.Of("counter").Stats().Resident; n != 0 || c.residents.cache.Count()+c.residents.cache.HibernatedCount() != 0 {
			t.Errorf("%d are counted, %d and %d in memory", n, c.residents.cache.Count(), c.residents.cache.HibernatedCount())
		}
		r := &request.Request{Kind: request.Query, Name: "total", Shard: worldShard, Done: j, Entity: sharding.EntityID{Type: "counter", ID: "device-00000007"}}
		if j.turn([]*request.Request{r}); r.Result.Err != nil || c.residents.cache.Count() != 1 {
			t.Errorf("asked for again: %v, %d in memory", r.Result.Err, c.residents.cache.Count())
		}
	}
}
