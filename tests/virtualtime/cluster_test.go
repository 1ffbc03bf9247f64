package virtualtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
)

func nameOf(n int) string { return fmt.Sprintf("e%d", n) }

func add(entity string, amount int) client.Command {
	return client.Command{EntityType: "counter", EntityID: entity, Name: "add", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}
}

func total(entity string) client.Query {
	return client.Query{EntityType: "counter", EntityID: entity, Name: "total"}
}

// Nodes that start before the bootstrapping node wait for it, in any order.
func TestNodesJoinInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 1, 3}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			run(t, options{nodes: 3, shards: 3}, func(t *testing.T, w *world) {
				var started []func()
				for _, i := range order {
					started = append(started, w.launch(i))
					time.Sleep(7 * time.Second)
				}
				for _, await := range started {
					await()
				}
				w.settled()
				w.push()
				if _, err := w.beside(order[0]).Send(t.Context(), add("a", 1)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Any node accepts an upload and any request, and all nodes give the same
// answers.
func TestEveryNodeServesRequests(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.found()
		if _, err := w.beside(2).Upload(t.Context(), modules["counter"], true); err != nil {
			t.Fatal(err)
		}
		const entities = 8
		for round := 1; round <= 3; round++ {
			for n := range entities {
				r, err := w.beside(1+(n+round)%3).Send(t.Context(), add(nameOf(n), n))
				if err != nil || int(r.Sequence) != round {
					t.Errorf("command %d to %s: sequence %d, %v", round, nameOf(n), r.Sequence, err)
				}
			}
		}
		var bytes, known uint64
		for _, s := range w.shards(2)[1:] {
			bytes, known = bytes+s.GetBytes(), known+s.GetEntityCount()
		}
		if known != entities || bytes < 3*known*50 {
			t.Errorf("the shards tell of %d entities and %d bytes", known, bytes)
		}
		ran := map[string]bool{}
		for i := range w.nodes {
			for n := range entities {
				a, err := w.beside(i).Query(t.Context(), total(nameOf(n)))
				if want := fmt.Sprintf(`{"total":%d}`, 3*n); err != nil || string(a.Data) != want || a.Sequence != 3 {
					t.Errorf("%s says of %s: %s at %d, %v", id(i), nameOf(n), a.Data, a.Sequence, err)
				}
				e, err := w.beside(i).Entity(t.Context(), "counter", nameOf(n))
				if err != nil {
					t.Error(err)
				}
				ran[e.GetNodeId()] = true
			}
		}
		if len(ran) != 3 {
			t.Errorf("the entities are on %v", ran)
		}
	})
}

// A node that joins later gets its share of the shards.
func TestFourthNodeJoins(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.loaded(pace)
		w.start(4)
		w.settled()
		w.until("n4 leads a shard", func() bool {
			for _, s := range w.shards(4) {
				if s.GetShardId() != 0 && s.GetLeader() == "n4" {
					return true
				}
			}
			return false
		})
		w.until("every shard has three voters", func() bool { return w.voted(4, 3) })
		w.judge()
	})
}
