package entity

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// outcomes holds the error of each request by tag.
type outcomes map[uint64]error

func (o outcomes) Complete(r *request.Request) { o[r.Tag] = r.Result.Err }

// TestStepDownReportsDefiniteOutcomes checks that only proposed commands have an
// unknown outcome. Commands that were decided and not proposed, or that waited
// for a load, for room or for a ReadIndex round, have had no effect, and their
// error says so. No entity of the shard stays in memory.
func TestStepDownReportsDefiniteOutcomes(t *testing.T) {
	const (
		proposed = iota
		repeated // a retry of the proposed command
		refused  // is rejected, which may depend on the proposed command
		query
		cold
		undecided
		open
		late
	)
	w := newWorld(t, 1)
	w.elect()
	w.elect()
	got := outcomes{}
	submit := func(tag uint64, entity, name string, kind request.Kind) {
		r := &request.Request{
			Kind: kind, Tag: tag, Entity: sharding.EntityID{Type: "tally", ID: entity}, Shard: worldShard, Name: name,
			Payload: []byte("1"), ExpectedSequence: request.NoExpectation, Done: got,
		}
		if kind == request.Command {
			r.ID = journal.CommandID(rune('a' + tag))
		}
		if tag == repeated {
			r.ID = journal.CommandID(rune('a' + proposed))
		}
		w.core.submit(w.now, []*request.Request{r})
	}
	w.prompt = true // guest calls return immediately
	submit(100, "warm", "add", request.Command)
	w.core.runTurns()
	w.chunk()
	w.core.runTurns()
	w.core.endTurn()
	w.commit()
	if err, done := got[100]; !done || err != nil {
		t.Fatalf("the first command: %v, done %v", err, done)
	}
	submit(proposed, "warm", "add", request.Command)
	w.core.runTurns()
	w.core.endTurn()
	if len(w.flights) != 1 {
		t.Fatalf("%d proposals", len(w.flights))
	}
	submit(repeated, "warm", "add", request.Command)
	submit(refused, "warm", "deny", request.Command)
	submit(query, "warm", "sum", request.Query)
	submit(cold, "cold", "add", request.Command)
	w.core.runTurns()
	submit(open, "warm", "add", request.Command)
	w.core.runTurns()
	submit(undecided, "warm", "add", request.Command)
	w.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: w.term + 1})
	submit(late, "warm", "add", request.Command)
	for tag := range uint64(late + 1) {
		err, done := got[tag]
		var elsewhere *sharding.NotLeaderError
		unknown := tag == proposed || tag == repeated
		if !done || unknown != errors.Is(err, request.ErrOutcomeUnknown) || unknown == errors.As(err, &elsewhere) {
			t.Errorf("request %d: %v, done %v", tag, err, done)
		}
	}
	if w.core.residents.known != 0 || len(w.core.unloaded) != 0 || len(w.core.residents.pools.All()) != 0 || w.open != 0 || w.core.owed != 0 {
		t.Errorf("left in memory: %d entities, %d away, %d instances, %d requests", w.core.residents.known, len(w.core.unloaded), w.open, w.core.owed)
	}
}

// reopen does what the end of an import does: proposals in flight are rejected
// without a report, and the shard is reopened.
func (w *world) reopen() {
	lost := w.flights
	w.flights, w.lost = nil, w.lost || len(lost) > 0
	w.core.event(&coreEvent{Kind: eventReopened, Shard: worldShard, Clock: w.core.shard(worldShard).clock})
	for _, f := range lost {
		w.core.event(&coreEvent{Kind: eventProposalDone, Shard: worldShard, Term: f.term, Number: f.proposal, Err: request.ErrNotApplied})
	}
}
