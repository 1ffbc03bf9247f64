package entity

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// sizes are the sizes of the state and of the messages that the command "large"
// outputs.
type sizes struct{ state, messages int }

// large stores the sum with leading zeros.
func (g *adder) large(out []byte, h uint64) []byte {
	g.sums[h]++
	out = abi.AppendState(out, fmt.Appendf(nil, "%0*d", max(1, g.w.sizes.state), g.sums[h]))
	for range g.w.sizes.messages {
		out = abi.AppendSend(out, abi.Send{EntityType: []byte("tally"), EntityID: []byte("sink"), Command: []byte("note"), Payload: make([]byte, 60_000)})
	}
	return out
}

func largeWorld(t *testing.T) *world {
	w := quiet(t)
	w.durable = true
	w.serve(w.newest)
	w.core.event(&coreEvent{Kind: eventActivationsChanged})
	w.core.opts.SnapshotEvents, w.core.opts.SnapshotBytes, w.core.opts.ProposedBytes, w.core.opts.EntitySends = 1<<30, 1<<30, 1<<30, 100
	return w
}

// TestOutputLargerThanEntryIsRejected checks that a command whose output does
// not fit into a log entry is rejected, because the output can never be
// stored.
func TestOutputLargerThanEntryIsRejected(t *testing.T) {
	w := largeWorld(t)
	w.core.opts.ClusterVersion = maxLevel
	w.sizes = sizes{state: 750_000, messages: 3}
	if res := w.ask(request.Command, "large", "a"); res.Err != nil {
		t.Fatalf("what fits: %v", res.Err)
	}
	w.sizes = sizes{state: 900_000, messages: 3}
	if res := w.ask(request.Command, "large", "b"); !errors.Is(res.Err, request.ErrOutputLimit) {
		t.Fatalf("what fits no entry: %v", res.Err)
	}
	if res := w.ask(request.Command, "add", "c"); res.Err != nil || res.Sequence != 2 {
		t.Fatalf("after that: %+v", res)
	}
}

// TestLargeRecordGetsItsOwnEntry checks that a record that does not fit into
// the open entry gets an entry of its own.
func TestLargeRecordGetsItsOwnEntry(t *testing.T) {
	w := largeWorld(t)
	for _, e := range []string{"a", "b"} {
		w.askOf(e, request.Command, "add", "first-"+e) // load both entities
	}
	got := outcomes{}
	for i, size := range []int{200_000, 900_000} {
		w.sizes.state = size
		w.core.submit(w.now, []*request.Request{{
			Kind: request.Command, Tag: uint64(i), Entity: sharding.EntityID{Type: "tally", ID: string(rune('a' + i))}, Shard: worldShard,
			Name: "large", Payload: []byte("1"), ID: journal.CommandID(rune('x' + i)), ExpectedSequence: request.NoExpectation, Done: got,
		}})
		w.core.runTurns()
	}
	w.core.endTurn()
	for len(w.flights) > 0 {
		w.commit()
	}
	for i := range uint64(2) {
		if err, done := got[i]; !done || err != nil {
			t.Errorf("command %d: %v, done %v", i, err, done)
		}
	}
}

// TestLargeRecordIsDecidedAgainAfterRejectedEntry checks that if the log
// rejects the open entry, which was proposed early to make room for a large
// record, the record's command is decided again, once.
func TestLargeRecordIsDecidedAgainAfterRejectedEntry(t *testing.T) {
	w := largeWorld(t)
	for _, e := range []string{"a", "b"} {
		w.askOf(e, request.Command, "add", "first-"+e)
	}
	got := outcomes{}
	for i, size := range []int{200_000, 900_000} {
		w.sizes.state, w.refuse = size, i > 0
		w.core.submit(w.now, []*request.Request{{
			Kind: request.Command, Tag: uint64(i), Entity: sharding.EntityID{Type: "tally", ID: string(rune('a' + i))}, Shard: worldShard,
			Name: "large", Payload: []byte("1"), ID: journal.CommandID(rune('x' + i)), ExpectedSequence: request.NoExpectation, Done: got,
		}})
		w.core.runTurns()
	}
	if err := got[0]; !errors.Is(err, request.ErrNotApplied) {
		t.Fatalf("the first command: %v", err)
	}
	for range 5 {
		w.chunk()
		w.core.runTurns()
		w.core.endTurn()
		w.commit()
	}
	if err, done := got[1]; !done || err != nil || w.head("b").sum != 2 || w.head("a").sum != 1 {
		t.Errorf("the second command: %v, done %v; the sums are %d and %d", err, done, w.head("a").sum, w.head("b").sum)
	}
}
