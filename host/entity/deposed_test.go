package entity

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestDeposedLeaderAnswersNothing checks that answers to queries, and
// rejections that depend on state, wait until a ReadIndex round that was
// requested after the query or command arrived is confirmed. A deposed leader
// gets no confirmation.
func TestDeposedLeaderAnswersNothing(t *testing.T) {
	for name, r := range map[string]request.Request{
		"query":     {Kind: request.Query, Name: "sum", ExpectedSequence: request.NoExpectation},
		"rejection": {Kind: request.Command, Name: "deny", ID: "c1", Payload: []byte("1"), ExpectedSequence: request.NoExpectation},
		"mismatch":  {Kind: request.Command, Name: "add", ID: "c1", Payload: []byte("1"), ExpectedSequence: 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			w.ask(request.Command, "add", "c0")
			var got asked
			r.Entity, r.Shard, r.Done = sharding.EntityID{Type: "tally", ID: "x"}, worldShard, &got
			r.First = w.now
			w.core.submit(w.now, []*request.Request{&r})
			w.core.runTurns()
			w.core.endTurn()
			if got.got != nil || len(w.rounds) != 1 {
				t.Fatalf("answered %+v, with %d read rounds asked for", got.got, len(w.rounds))
			}
			w.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: w.term + 5}) // another node is elected
			var moved *sharding.NotLeaderError
			if got.got == nil || !errors.As(got.got.Err, &moved) {
				t.Fatalf("answered %+v, want a NotLeaderError", got.got)
			}
		})
	}
}
