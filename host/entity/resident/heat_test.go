package resident

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

func hotEntity(n int) *member {
	return &member{id: sharding.EntityID{Type: "t", ID: fmt.Sprint("e", n)}, key: uint32(n) * 2654435761}
}

func shardOf(e *member) sharding.ShardID { return sharding.ShardID(1 + e.key*244002641%3) }

func (h *Heat) add(now int64, e *member, fuel uint64) {
	h.Add(now, e.key, e.id, shardOf(e), fuel)
}

// TestSketchBoundsItsError checks that a sketch never counts an entity too
// low, that its count exceeds the true count by at most the error that it
// reports, and that its index finds every counter.
func TestSketchBoundsItsError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var s hotSketch
		true_ := map[sharding.EntityID]uint64{}
		entities := 50 + rng.IntN(1000)
		for range 20_000 {
			n := int(float64(entities) * rng.Float64() * rng.Float64() * rng.Float64())
			e := hotEntity(n)
			if rng.IntN(4) == 0 {
				e = hotEntity(rng.IntN(2)) // make two entities busy
			}
			true_[e.id]++
			s.add(e.key, e.id, shardOf(e), 3)
		}
		seen := map[sharding.EntityID]bool{}
		for i := range s.counters[:s.len] {
			c := &s.counters[i]
			if int(s.index[s.find(c.key, c.id)])-1 != i || int(s.index[c.slot])-1 != i || seen[c.id] {
				t.Fatalf("counter %d is not where the index says", i)
			}
			seen[c.id] = true
			if c.commands < true_[c.id] || c.commands-c.over > true_[c.id] {
				t.Fatalf("%v: %d, %d too high at most, was %d", c.id, c.commands, c.over, true_[c.id])
			}
			if i > 0 && c.commands < s.counters[(i-1)/2].commands {
				t.Fatalf("counter %d is below its parent", i)
			}
		}
		for id, n := range true_ {
			if n > 20_000/hotCounters && !seen[id] {
				t.Fatalf("%v was counted %d times and is not reported", id, n)
			}
		}
		if s.commands != 20_000 || s.fuel != 60_000 {
			t.Fatalf("%d commands, %d fuel", s.commands, s.fuel)
		}
	}
}

// TestHeatReportsRecentLoad checks that the busiest entities come first and that
// old load is forgotten after two windows.
func TestHeatReportsRecentLoad(t *testing.T) {
	var h Heat
	now := int64(1e18)
	load := func(hot int, seconds int) {
		for range seconds * 1000 {
			now += int64(time.Millisecond)
			h.add(now, hotEntity(hot), 10)
			h.add(now, hotEntity(100+int(now/1e6)%500), 1)
		}
	}
	load(1, 15)
	r := h.Report(now, 3)
	if len(r.Entities) != 3 || r.Entities[0].Entity.ID != "e1" || r.Entities[0].Shard != 2 {
		t.Fatalf("%+v", r)
	}
	rate := float64(r.Entities[0].Commands) / r.Span.Seconds()
	if share := float64(r.Entities[0].Fuel) / float64(r.Fuel); rate < 800 || rate > 1200 || share < 0.8 {
		t.Errorf("%.0f a second in %v, %.2f of the fuel", rate, r.Span, share)
	}
	load(2, 25)
	if r = h.Report(now, 1); r.Entities[0].Entity.ID != "e2" {
		t.Errorf("%+v", r)
	}
	if r = h.Report(now+int64(time.Hour), 5); len(r.Entities) != 0 || r.Commands != 0 {
		t.Errorf("after an idle hour: %+v", r)
	}
}

func BenchmarkHeat(b *testing.B) {
	entities := make([]*member, 4096)
	for i := range entities {
		entities[i] = hotEntity(i)
	}
	var h Heat
	now := int64(1e18)
	h.add(now, entities[0], 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.add(now+int64(i)*1000, entities[i*i%len(entities)], 7)
	}
}

func TestHeatAllocatesNothing(t *testing.T) {
	entities := make([]*member, 1000)
	for i := range entities {
		entities[i] = hotEntity(i)
	}
	var h Heat
	i, now := 0, int64(1e18)
	h.add(now, entities[0], 1)
	if n := testing.AllocsPerRun(20_000, func() {
		i++
		h.add(now+int64(i)*int64(time.Millisecond), entities[i%len(entities)], 1)
	}); n != 0 {
		t.Errorf("%v allocations a command", n)
	}
}
