package entity

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// outcomes keeps what each request came to, by tag.
type outcomes map[uint64]error

func (o outcomes) Complete(r *Request) { o[r.Tag] = r.Result.Err }

// TestStepDownSaysWhatIsCertain: only what was proposed has an unknown
// outcome; what was decided and not proposed, what waited for a load, for
// room or for a read round had none and says so. Nothing of the shard stays
// in memory.
func TestStepDownSaysWhatIsCertain(t *testing.T) {
	const (
		proposed = iota
		again    // the proposed command's id
		refused  // behind the proposed command
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
	send := func(tag uint64, entity, name string, kind Kind) {
		r := &Request{
			Kind: kind, Tag: tag, Entity: sharding.EntityID{Type: "tally", ID: entity}, Shard: worldShard, Name: name,
			Payload: []byte("1"), ExpectedSequence: NoExpectation, Done: got,
		}
		if kind == Command {
			r.ID = journal.CommandID(rune('a' + tag))
		}
		if tag == again {
			r.ID = journal.CommandID(rune('a' + proposed))
		}
		w.core.submit(w.now, []*Request{r})
	}
	w.prompt = true // visits return at once
	send(100, "warm", "add", Command)
	w.core.pump()
	w.chunk()
	w.core.pump()
	w.core.endTurn()
	w.commit()
	if err, done := got[100]; !done || err != nil {
		t.Fatalf("the first command: %v, done %v", err, done)
	}
	send(proposed, "warm", "add", Command)
	w.core.pump()
	w.core.endTurn()
	if len(w.flights) != 1 {
		t.Fatalf("%d proposals", len(w.flights))
	}
	send(again, "warm", "add", Command)
	send(refused, "warm", "deny", Command)
	send(query, "warm", "sum", Query)
	send(cold, "cold", "add", Command)
	w.core.pump()
	send(open, "warm", "add", Command)
	w.core.pump()
	send(undecided, "warm", "add", Command)
	w.core.event(&event{kind: evLeader, shard: worldShard, term: w.term + 1})
	send(late, "warm", "add", Command)
	for tag := range uint64(late + 1) {
		err, done := got[tag]
		var elsewhere *sharding.NotLeaderError
		unknown := tag == proposed || tag == again
		if !done || unknown != errors.Is(err, ErrOutcomeUnknown) || unknown == errors.As(err, &elsewhere) {
			t.Errorf("request %d: %v, done %v", tag, err, done)
		}
	}
	if w.core.known != 0 || len(w.core.away) != 0 || len(w.core.instances) != 0 || w.open != 0 || w.core.owed != 0 {
		t.Errorf("left in memory: %d entities, %d away, %d instances, %d requests", w.core.known, len(w.core.away), w.open, w.core.owed)
	}
}
