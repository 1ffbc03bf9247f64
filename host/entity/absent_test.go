package entity

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestFirstCommandOfAbsentEntityReadsNothing checks that if an entity is
// known to have no record, its first command is decided in the same turn
// without reading a history, and that the history of an evicted entity is
// read.
func TestFirstCommandOfAbsentEntityReadsNothing(t *testing.T) {
	w := quiet(t)
	w.core.stats.Loads = 1 // the world reports an entity as absent at every second load
	first := func(id string) (read bool) {
		w.core.submit(w.now, []*request.Request{{
			Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: id}, Name: "add", Payload: []byte("1"), ID: journal.CommandID(fmt.Sprint(id, w.core.stats.Loads)),
			Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: &asked{},
		}})
		w.core.runTurns()
		w.core.endTurn()
		if len(w.chunks) == 0 && len(w.flights) != 1 {
			t.Fatalf("%s: neither read nor decided", id)
		}
		return len(w.chunks) > 0
	}
	if first("new") {
		t.Error("the history of a new entity is read")
	}
	w.commit()
	w.submit(&request.Request{Kind: request.Passivate, Entity: sharding.EntityID{Type: "tally", ID: "new"}})
	w.core.stats.Loads = 3
	if !first("new") {
		t.Error("the history of an entity that has left is not read")
	}
}
