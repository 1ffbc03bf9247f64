package coordinator_test

import (
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// led counts the data shards that a node leads.
func (w *world) led(node sharding.NodeID) int {
	n := 0
	for id := sharding.ShardID(1); id <= shards; id++ {
		if w.leaderOf(id) == node {
			n++
		}
	}
	return n
}

// slowWorld returns a calm cluster of three nodes, and a node that leads
// something but is not the coordinator.
func slowWorld(t *testing.T) (*world, *host) {
	t.Helper()
	w := calmWorld(t, 3, 3)
	w.until(t, "whole", w.whole)
	w.until(t, "every host leads", func() bool {
		for _, h := range w.hosts {
			if w.led(h.id) == 0 {
				return false
			}
		}
		return true
	})
	for _, h := range w.hosts {
		h.pace = 2 * time.Millisecond
		if w.leaderOf(sharding.MetaShard) != h.id && w.led(h.id) > 0 {
			return w, h
		}
	}
	t.Fatal("one node coordinates and leads all")
	return nil, nil
}

// waits runs the world until the condition holds and returns how long that
// took.
func (w *world) waits(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	began := w.now
	w.until(t, what, holds)
	return w.now.Sub(began)
}

// A node that is ten times slower than the other nodes loses its leaderships.
// It gets them back after it has been fast for a back-off time, which grows.
func TestSlowNodeLosesLeaderships(t *testing.T) {
	w, slow := slowWorld(t)
	least := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}
	for turn, backOff := range least {
		slow.pace = 200 * time.Millisecond
		if took := w.waits(t, "it leads nothing", func() bool { return w.led(slow.id) == 0 }); took < 5*time.Second {
			t.Errorf("turn %d: evicted after %v", turn, took)
		}
		slow.pace = 2 * time.Millisecond
		took := w.waits(t, "it leads again", func() bool { return w.led(slow.id) > 0 })
		t.Logf("it leads again after %v", took)
		if took < backOff || took > 2*backOff {
			t.Errorf("turn %d: it leads again after %v, wanted %v", turn, took, backOff)
		}
	}
}

// The plan says which nodes are given no leadership, why, and until when. While
// a node is slow, the plan only says how long the node must be fast, so that
// the entry does not change.
func TestTroublesAreReported(t *testing.T) {
	w, slow := slowWorld(t)
	told := func() coordinator.Impairment {
		if len(w.troubles) != 1 || w.troubles[0].Node != slow.id {
			return coordinator.Impairment{}
		}
		return w.troubles[0]
	}
	slow.pace = 200 * time.Millisecond
	w.until(t, "it leads nothing", func() bool { return w.led(slow.id) == 0 })
	want := coordinator.Impairment{Node: slow.id, Slow: true, Cooldown: 10 * time.Second}
	for range 40 {
		if w.tick(); told() != want {
			t.Fatalf("while it is slow the plan says %+v", w.troubles)
		}
	}
	slow.pace = 2 * time.Millisecond
	w.until(t, "it is quick", func() bool { return !told().Until.IsZero() })
	want = told()
	if left := want.Until.Sub(w.now); !want.Slow || left <= 5*time.Second || left > 10*time.Second {
		t.Errorf("once it is quick the plan says %+v, %v ahead", want, left)
	}
	for w.now.Before(want.Until.Add(-time.Second)) {
		if w.tick(); told() != want {
			t.Fatalf("until then the plan says %+v, before %+v", w.troubles, want)
		}
	}
	if w.led(slow.id) > 0 {
		t.Error("it leads before that")
	}
	w.until(t, "nothing is held against it", func() bool { return len(w.troubles) == 0 })
	if late := w.now.Sub(want.Until); late < 0 || late > 2*time.Second {
		t.Errorf("that was %v after what was told", late)
	}

	w.until(t, "it leads again", func() bool { return w.led(slow.id) > 0 })
	slow.cut = true
	w.until(t, "it leads nothing", func() bool { return w.led(slow.id) == 0 })
	slow.cut = false
	w.until(t, "it is back", func() bool { return told() != coordinator.Impairment{} })
	if back := told(); back.Slow || back.Cooldown != 20*time.Second || !back.Until.After(w.now) {
		t.Errorf("of a node that was lost the plan says %+v", back)
	}
}

// Slowness that is short, small or shared by all nodes moves nothing.
func TestShortOrSharedSlownessMovesNothing(t *testing.T) {
	w, slow := slowWorld(t)
	before := w.led(slow.id)
	stays := func(what string, ticks int) {
		t.Helper()
		for range ticks {
			w.tick()
			if w.led(slow.id) < before {
				t.Fatalf("%s moved a leadership", what)
			}
		}
	}
	for range 5 {
		slow.pace = time.Second
		stays("a moment", 16) // 4 seconds
		slow.pace = 0
		stays("a moment", 4)
	}
	slow.pace = 49 * time.Millisecond
	stays("what is small", 200)
	for _, h := range w.hosts {
		h.pace = 200 * time.Millisecond
	}
	stays("what all share", 200)
}

// An operator can move a shard to a slow node, and it stays there.
func TestOperatorCanMoveShardToSlowNode(t *testing.T) {
	w, slow := slowWorld(t)
	slow.pace = 200 * time.Millisecond
	w.waits(t, "it leads nothing", func() bool { return w.led(slow.id) == 0 })
	if p := w.ask(t, coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: slow.id}); p.Err != nil {
		t.Fatal(p.Err)
	}
	for range 100 {
		w.tick()
		if w.leaderOf(1) != slow.id {
			t.Fatal("the shard went away again")
		}
	}
	if w.led(slow.id) != 1 {
		t.Errorf("it leads %d shards", w.led(slow.id))
	}
}

// A flapping node gets its leaderships back later each time.
func TestFlappingNodeBacksOff(t *testing.T) {
	w, flaps := slowWorld(t)
	for _, backOff := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		flaps.cut = true
		w.waits(t, "it leads nothing", func() bool { return w.led(flaps.id) == 0 })
		flaps.cut = false
		took := w.waits(t, "it leads again", func() bool { return w.led(flaps.id) > 0 })
		t.Logf("it leads again after %v", took)
		if took < backOff || took > 2*backOff {
			t.Errorf("it leads again after %v, wanted %v", took, backOff)
		}
	}
}
