package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestEntitiesOverMoves checks, while leaderships move and a leader is killed,
// that sessions keep the state of the latest command, always-on entities are
// resident wherever their shard is led, and a schedule that catches up misses
// no tick.
func TestEntitiesOverMoves(t *testing.T) {
	testkit.Long(t, "long")
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 3})
	cluster.Push("session")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/guest"), true); err != nil {
		t.Fatal(err)
	}
	w := &movedEntities{t: t, c: c}
	const entities, period = 30, 1000
	for i := range entities {
		w.send("session", id(i), "login", "")
		w.send("keeper", id(i), "add", `{"amount":1}`)
	}
	w.send("alarm", "clock", "repeat", fmt.Sprintf(`{"name":"t","everyMs":%d,"missed":1}`, period))
	for round := range 4 {
		for i := range entities {
			w.send("session", id(i), "add", `{"item":"tea","quantity":1}`)
		}
		switch {
		case round < 2:
			for shard := uint32(1); shard <= 3; shard++ {
				to := cluster.Node((cluster.Leader(shard) + 1) % nodes).ID()
				if err := c.MoveShard(t.Context(), shard, to); err != nil {
					t.Fatal(err)
				}
			}
		case round == 2:
			victim := cluster.Leader(1)
			cluster.Kill(victim)
			cluster.Await("another leader", func() bool { l := cluster.Leader(1); return l >= 0 && l != victim })
		default:
			cluster.Start()
		}
		cluster.Await("the remembered entities are in memory", func() bool { return w.inMemory(entities) })
		for i := range entities {
			w.cart(id(i), round+1)
		}
	}
	ticks := len(w.ticks())
	cluster.Await("the schedule goes on", func() bool { return len(w.ticks()) > ticks+1 })
	due := w.ticks()
	for i := 1; i < len(due); i++ {
		if step := time.Duration(due[i] - due[i-1]); step != period*time.Millisecond {
			t.Errorf("tick %d is due %v after the one before", i, step)
		}
	}
}

func id(i int) string { return fmt.Sprintf("mall%d-user%d", i%3, i) }

// movedEntities is a client's view of the entities.
type movedEntities struct {
	t *testing.T
	c *client.Client
}

func (w *movedEntities) send(entityType, id, name, payload string) {
	w.t.Helper()
	if _, err := w.c.Send(w.t.Context(), client.Command{EntityType: entityType, EntityID: id, Name: name, Data: []byte(payload)}); err != nil {
		w.t.Fatalf("%s %s %s: %v", entityType, id, name, err)
	}
}

func (w *movedEntities) inMemory(entities int) bool {
	for i := range entities {
		e, err := w.c.Entity(w.t.Context(), "keeper", id(i))
		if err != nil || !e.GetResident() {
			return false
		}
	}
	return true
}

// cart checks the quantity in a session and its revision.
func (w *movedEntities) cart(id string, quantity int) {
	w.t.Helper()
	a, err := w.c.Query(w.t.Context(), client.Query{EntityType: "session", EntityID: id, Name: "cart"})
	var s struct{ Cart []struct{ Quantity int } }
	if err == nil {
		err = json.Unmarshal(a.Data, &s)
	}
	if err != nil || len(s.Cart) != 1 || s.Cart[0].Quantity != quantity || a.Sequence != uint64(quantity+1) {
		w.t.Fatalf("%s has %s at revision %d, want %d: %v", id, a.Data, a.Sequence, quantity, err)
	}
}

// ticks returns the due times of the schedule's ticks.
func (w *movedEntities) ticks() (due []int64) {
	w.t.Helper()
	for e, err := range w.c.ReadEvents(w.t.Context(), client.EventRange{EntityType: "alarm", EntityID: "clock"}) {
		var tick struct{ Due int64 }
		if err == nil {
			err = json.Unmarshal(e.Data, &tick)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		due = append(due, tick.Due)
	}
	return due
}
