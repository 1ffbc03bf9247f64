package entity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestStepDownEvictsInSlices checks that no turn evicts more than a slice of
// the entities of a lost shard, hibernated or not. The shard is led again
// once its last entity has left, and its entities are then loaded again.
func TestStepDownEvictsInSlices(t *testing.T) {
	for name, c := range map[string]struct {
		dormant  bool
		reopened bool
	}{"awake": {}, "dormant": {dormant: true}, "reopened": {reopened: true}} {
		t.Run(name, func(t *testing.T) {
			const entities, slice = 9000, 300
			j := crowd(entities, 1)
			core, s := j.core, j.core.shard(worldShard)
			core.opts.LeaveSlice, core.mayLeave = slice, slice
			if c.dormant {
				core.opts.HibernateAfter = time.Second
				core.residents.updateIdleTimes()
				core.now = core.now.Add(2 * time.Second)
				for core.residents.sweepAt != 0 && core.residents.sweepAt <= core.now.UnixNano() {
					core.residents.passivateIdle()
					core.now = core.now.Add(1)
				}
				if s.hibernated.Len() < entities/2 {
					t.Fatalf("%d are dormant", s.hibernated.Len())
				}
			}
			next := s.log.Next()
			query := func() *request.Request {
				return &request.Request{Kind: request.Query, Name: "total", Shard: worldShard, Done: j, ExpectedSequence: request.NoExpectation,
					Entity: sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", 7)}}
			}
			if c.reopened {
				core.event(&coreEvent{Kind: eventReopened, Shard: worldShard})
			} else {
				core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: 2})
				core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: 3, Self: true})
				core.event(&coreEvent{Kind: eventTermStarted, Shard: worldShard, Term: 3})
			}
			turns := 0
			for before := entities; s.state != leading; turns++ {
				if n := core.residents.known; n < before-slice || n == before && turns > 1 || turns > 2*entities/slice {
					t.Fatalf("turn %d: %d of %d are left", turns, n, before)
				} else {
					before = n
				}
				r := query()
				var elsewhere *sharding.NotLeaderError
				if j.turn([]*request.Request{r}); s.state != leading && !errors.As(r.Result.Err, &elsewhere) {
					t.Fatalf("turn %d: %+v", turns, r.Result)
				}
			}
			if n := core.residents.known; n != 0 || s.hibernated.Len() != 0 || s.entities.Len() != 0 || core.residents.cache.Count()+core.residents.cache.HibernatedCount() != 0 {
				t.Errorf("%d are known, %d dormant, %d not", n, s.hibernated.Len(), s.entities.Len())
			}
			if turns < entities/slice {
				t.Errorf("%d turns", turns)
			}
			want := uint64(1)
			if c.reopened {
				want = next
			}
			if s.log.Next() != want {
				t.Errorf("the next proposal is %d, want %d", s.log.Next(), want)
			}
			loads := core.stats.Loads
			r := query()
			if j.turn([]*request.Request{r}); r.Result.Err != nil || core.stats.Loads != loads+1 {
				t.Errorf("%+v, %d loads", r.Result, core.stats.Loads-loads)
			}
		})
	}
}

// TestStepDownEvictsBusyInstancesLater checks that entities in a busy
// instance leave in slices after its call. A busy guest cannot drop states,
// and must not drop all of them in one turn when the call returns.
func TestStepDownEvictsBusyInstancesLater(t *testing.T) {
	j := crowd(10, 1)
	core, s := j.core, j.core.shard(worldShard)
	in := core.residents.pools.All()[0]
	in.Begin(sharding.EntityID{})
	core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: 2})
	for range 5 {
		core.runTurns()
	}
	if s.entities.Len() != 10 || len(core.leaving) != 1 {
		t.Fatalf("%d entities are left", s.entities.Len())
	}
	in.End(in.Guest())
	core.runTurns()
	if s.entities.Len() != 0 || len(core.leaving) != 0 || core.residents.known != 0 {
		t.Errorf("%d entities are left", s.entities.Len())
	}
}
