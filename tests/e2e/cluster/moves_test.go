package cluster

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

var moves = flag.Int("moves", 12, "how many shards are moved")

const (
	// moveRest is the pause between two commands of a probe while shards are
	// moved. It is short because the cost of a move is visible only if a caller
	// sends a command during the move.
	moveRest = 10 * time.Millisecond
	// movesPerKill is the number of moves between two kills.
	movesPerKill = 10
)

// TestMoves transfers leaderships under load and prints how long the callers of
// a moved shard waited. No command may fail, be lost or be executed twice.
func TestMoves(t *testing.T) {
	testkit.Long(t, "nemesis")
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards})
	cluster.Push("counter")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ps := startProbes(t, c, shards, moveRest)
	cluster.Await("every probe is answered", func() bool { return ps.allAnswered(0) })
	var pauses, others, orders []time.Duration
	for i := range *moves {
		shard := 1 + i%shards
		node := cluster.Node((cluster.Leader(uint32(shard)) + 1) % nodes).ID()
		moved := func(s int) bool { return s == shard }
		from := ps.h.Now()
		if err := c.MoveShard(t.Context(), uint32(shard), node); err != nil {
			t.Fatalf("move shard %d to %s: %v", shard, node, err)
		}
		orders = append(orders, ps.h.Now()-from)
		led := ps.h.Now()
		cluster.Await("the moved shard answers", func() bool { return ps.answered(led, moved) })
		to := ps.h.Now()
		pauses = append(pauses, ps.gaps(from, to, moved)...)
		others = append(others, ps.gaps(from, to, func(s int) bool { return s != shard })...)
		ps.noneFailed()
	}
	events := ps.end(c)
	slices.Sort(pauses)
	slices.Sort(others)
	slices.Sort(orders)
	t.Logf("%d moves of %d shards, %d events, each once\npause of the moved shard: p50 %s, p90 %s, p99 %s, max %s\nits order took: p50 %s, p99 %s\nlongest wait of the other shards meanwhile: p50 %s, p99 %s",
		*moves, shards, events, quantile(pauses, 0.5), quantile(pauses, 0.9), quantile(pauses, 0.99), quantile(pauses, 1),
		quantile(orders, 0.5), quantile(orders, 0.99), quantile(others, 0.5), quantile(others, 0.99))
}

// TestMovesAndKills transfers leaderships while nodes are killed, and checks
// all answers.
func TestMovesAndKills(t *testing.T) {
	testkit.Long(t, "long")
	w := begin(t)
	for i := range *moves {
		if i%movesPerKill == 0 {
			victim := w.rng.IntN(nodes)
			w.Kill(victim)
			w.done["kill"]++
			for range 3 {
				w.moveTo((victim + 1 + w.rng.IntN(nodes-1)) % nodes)
			}
			w.Node(victim).Start()
			if i > 0 {
				w.load.NextEntities()
			}
		}
		w.moveTo(w.rng.IntN(nodes))
		w.goesOn(5)
	}
	w.end()
}

// moveTo transfers a random shard to a node, which may already lead it.
func (w *world) moveTo(place int) {
	w.t.Helper()
	shard, to := 1+w.rng.IntN(shards), w.Node(place).ID()
	ctx, cancel := context.WithTimeout(w.t.Context(), testkit.Patience)
	defer cancel()
	if err := w.c.MoveShard(ctx, uint32(shard), to); err != nil {
		w.t.Fatalf("move shard %d to %s: %v", shard, to, err)
	}
	w.done["move"]++
}

// TestGracefulRestartsFailNoCall drains and resumes each node, then stops each gracefully and
// starts it again, under load. No call may fail.
func TestGracefulRestartsFailNoCall(t *testing.T) {
	testkit.Long(t, "long")
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards})
	cluster.Push("counter")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ps := startProbes(t, c, shards, moveRest)
	ps.startStream(c, shards, moveRest)
	cluster.Await("every probe is answered", func() bool { return ps.allAnswered(0) })
	for place := range nodes {
		id := cluster.Node(place).ID()
		from := ps.h.Now()
		moved, err := c.Drain(t.Context(), id)
		if err != nil {
			t.Fatalf("drain %s: %v", id, err)
		}
		took := ps.h.Now() - from
		cluster.Await("every probe is answered", func() bool { return ps.allAnswered(from + took) })
		waits := ps.gaps(from, ps.h.Now(), func(int) bool { return true })
		if slices.ContainsFunc(cluster.Shards(place), func(s *clusterv1.Shard) bool { return s.GetLeader() == id }) {
			t.Fatalf("%s is drained and leads", id)
		}
		if err := c.Resume(t.Context(), id); err != nil {
			t.Fatalf("resume %s: %v", id, err)
		}
		ps.noneFailed()
		t.Logf("%s drained of %d shards in %s: longest wait of an entity p50 %s, p99 %s", id, moved, took.Round(time.Millisecond), quantile(waits, 0.5), quantile(waits, 0.99))
		cluster.AwaitSpread()
	}
	for place := range nodes {
		id := cluster.Node(place).ID()
		from := ps.h.Now()
		cluster.Stop(place)
		took := ps.h.Now() - from
		cluster.Await("every probe is answered", func() bool { return ps.allAnswered(from + took) })
		waits := ps.gaps(from, ps.h.Now(), func(int) bool { return true })
		cluster.Node(place).Start()
		cluster.AwaitSpread()
		ps.noneFailed()
		t.Logf("%s stopped in %s: longest wait of an entity p50 %s, p99 %s", id, took.Round(time.Millisecond), quantile(waits, 0.5), quantile(waits, 0.99))
	}
	t.Logf("%d events, each once", ps.end(c))
}
