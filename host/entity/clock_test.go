package entity

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

func id(i int) journal.CommandID { return journal.CommandID(fmt.Sprintf("c%d", i)) }

// TestLogClockNeverRunsBack checks that a wall clock that is set back, or a
// leader whose clock is behind, never records an earlier time.
func TestLogClockNeverRunsBack(t *testing.T) {
	w := newWorld(t, 1)
	w.elect()
	w.elect()
	later := w.now.UnixNano() + 5e9
	w.core.event(&coreEvent{Kind: eventTermStarted, Shard: worldShard, Term: w.term, Clock: later})
	command := func(n int) {
		c := &client{w: w, id: id(n)}
		c.req = &request.Request{
			Entity: sharding.EntityID{Type: "tally", ID: "a"}, Shard: worldShard, Name: "add", Payload: []byte("1"),
			ID: id(n), ExpectedSequence: request.NoExpectation, Done: c,
		}
		w.sent[c.id] = &sent{entity: "a", name: "add", payload: "1"}
		w.core.submit(w.now, []*request.Request{c.req})
		for range 20 {
			w.chunk()
			w.core.runTurns()
			w.core.endTurn()
			w.comeBack()
			w.commit()
		}
	}
	command(0)
	w.now = w.now.Add(-1e9)
	command(1)
	w.now = w.now.Add(20e9)
	command(2)
	if len(w.log) != 3 || len(w.problems) > 0 {
		t.Fatalf("%d records, %v", len(w.log), w.problems)
	}
	if w.log[0].RecordedAt != later || w.log[1].RecordedAt != later || w.log[2].RecordedAt != w.now.UnixNano() {
		t.Fatalf("recorded at %d, %d, %d; the shard's clock was %d, the wall clock is %d",
			w.log[0].RecordedAt, w.log[1].RecordedAt, w.log[2].RecordedAt, later, w.now.UnixNano())
	}
}
