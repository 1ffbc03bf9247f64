package entity

import (
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestOutboxOpsFollowWaitingRecords checks that a full entry of outbox operations
// is proposed after the waiting records, and that both are decided.
func TestOutboxOpsFollowWaitingRecords(t *testing.T) {
	w := quiet(t)
	w.ask(request.Command, "add", "a")
	w.core.opts.BatchBytes = 1000
	got := outcomes{}
	w.core.submit(w.now, []*request.Request{{
		Kind: request.Command, Tag: 1, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Shard: worldShard,
		Name: "add", Payload: []byte("1"), ID: "b", ExpectedSequence: request.NoExpectation, Done: got,
	}})
	w.core.runTurns()
	acks := make([]request.Arrived, 200)
	for i := range acks {
		acks[i] = request.Arrived{ID: journal.ItemID{Index: 1 << 40, Ordinal: uint32(i)}, Source: sharding.EntityID{Type: "tally", ID: "x"}}
	}
	w.core.submit(w.now, []*request.Request{{
		Kind: request.Acknowledge, Tag: 2, Shard: worldShard, Delivery: &request.Delivery{Arrived: acks}, ExpectedSequence: request.NoExpectation, Done: got,
	}})
	w.core.runTurns()
	w.core.endTurn()
	for len(w.flights) > 0 {
		w.commit()
	}
	for _, p := range w.problems {
		t.Error(p)
	}
	for _, tag := range []uint64{1, 2} {
		if err, done := got[tag]; !done || err != nil {
			t.Errorf("request %d: %v, done %v", tag, err, done)
		}
	}
}
