package entity

import (
	"errors"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestRetryOfALostCommandIsNotAcknowledged checks a record without events,
// whose loss does not break the hash chain, so that a later record of the
// entity may be committed. A retry that arrived in between must be decided
// again.
func TestRetryOfALostCommandIsNotAcknowledged(t *testing.T) {
	w := quiet(t)
	w.ask(request.Command, "add", "first")
	w.flying("setnote", "x")
	w.flying("add", "y")
	retry := &asked{}
	w.core.submit(w.now, []*request.Request{{
		Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "setnote", Payload: []byte("1"), ID: "x",
		Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: retry, Again: true, First: w.now.Add(-time.Millisecond),
	}})
	w.core.runTurns()
	w.core.endTurn()
	lost := w.flights[0]
	w.flights = w.flights[1:]
	w.core.event(&coreEvent{Kind: eventProposalDone, Shard: worldShard, Term: lost.term, Number: lost.proposal, Err: errors.New("an item out of turn")})
	w.ask(request.Command, "add", "z") // the answer waits for all earlier commands
	if retry.got == nil || retry.got.Err != nil || retry.got.Duplicate {
		t.Errorf("the retry: %+v", retry.got)
	}
	n := 0
	for _, r := range w.log {
		if r.CommandID == journal.CommandID("x") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the command is in the log %d times", n)
	}
}

// TestLongGuestCallDoesNotSetLogClockBack checks that the record of a long guest call has
// the time at which the call began, and that the shard's clock is not set back
// to it.
func TestLongGuestCallDoesNotSetLogClockBack(t *testing.T) {
	w := quiet(t)
	w.core.opts.InstanceBytes = 1 // so each entity gets its own instance
	w.tell("slow")
	w.tell("fast")
	w.long = true
	w.number++
	w.core.submit(w.now, []*request.Request{{
		Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "slow"}, Name: "add", Payload: []byte("1"), ID: "slow",
		Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: &asked{},
	}})
	w.core.runTurns()
	w.long = false
	if len(w.away) != 1 {
		t.Fatal("the guest call did not run long")
	}
	w.now = w.now.Add(time.Second)
	w.tell("fast")
	clock := w.core.shard(worldShard).clock
	w.comeBack()
	if w.core.shard(worldShard).clock < clock {
		t.Errorf("the clock is set back to %d from %d", w.core.shard(worldShard).clock, clock)
	}
}
