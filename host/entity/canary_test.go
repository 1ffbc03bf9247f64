package entity

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// follow makes the node serve the next revision, with the change applied to the
// type.
func (w *world) follow(change func(*Type)) {
	next := *w.typ
	w.newest++
	if next.Revision = w.newest; next.Made == 0 {
		next.Made = next.Revision
	}
	change(&next)
	w.typ = &next
	w.core.event(&coreEvent{Kind: eventActivationsChanged})
}

func mute(t *Type)   { t.WritesPaused = true }
func unmute(t *Type) { t.WritesPaused = false }
func same(*Type)     {}

// waiting submits a command to entity x and runs the world without waiting for
// the answer.
func (w *world) waiting(id string) *asked {
	w.t.Helper()
	a := &asked{}
	w.core.submit(w.now, []*request.Request{{
		Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"), ID: journal.CommandID(id),
		Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: a,
	}})
	w.work()
	return a
}

func (w *world) work() {
	for range 50 {
		w.core.runTurns()
		w.core.endTurn()
		w.chunk()
		w.commit()
		if len(w.rounds) > 0 {
			w.core.event(&coreEvent{Kind: eventReadConfirmed, Shard: worldShard, Number: w.rounds[0]})
			w.rounds = w.rounds[1:]
		}
	}
}

// carriedOut requires that the command was executed and left the given number
// of records.
func (w *world) carriedOut(a *asked, records int) {
	w.t.Helper()
	if a.got == nil || a.got.Err != nil || len(w.log) != records {
		w.t.Fatalf("%+v, %d records, want %d", a.got, len(w.log), records)
	}
}

// TestWritePausedEntitiesWait checks that entities whose writes are paused
// write nothing until the activations change, answer queries, and and stay
// loaded when writes resume.
func TestWritePausedEntitiesWait(t *testing.T) {
	w := quiet(t)
	w.follow(same)
	w.carriedOut(w.waiting("c1"), 1)
	loads := w.core.stats.Loads
	w.follow(mute)
	if res := w.ask(request.Query, "get", ""); res.Err != nil {
		t.Errorf("a query: %v", res.Err)
	}
	a := w.waiting("c2")
	if res := w.submit(&request.Request{Kind: request.Fence, Revision: w.newest}); res.Err != nil || w.revision != w.newest {
		t.Errorf("the log has revision %d of %d: %v", w.revision, w.newest, res.Err)
	}
	if a.got != nil || len(w.log) != 1 {
		t.Fatalf("a command of a write-paused entity was answered %+v, and there are %d records", a.got, len(w.log))
	}
	w.follow(unmute)
	w.work()
	w.carriedOut(a, 2)
	if w.core.stats.Loads != loads {
		t.Error("the entity was loaded again")
	}
}

// TestOutdatedGuestCallsHaveNoEffect checks that a guest call has no effect
// if it returns after its entity's writes were paused, or after the entity
// got another module. Its request is decided again.
func TestOutdatedGuestCallsHaveNoEffect(t *testing.T) {
	for name, change := range map[string]func(*Type){
		"paused":         mute,
		"another module": func(t *Type) { t.Made, t.Digest = t.Revision, journal.Digest{99} },
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			w.follow(same)
			w.carriedOut(w.waiting("c1"), 1)
			w.long = true
			a := w.waiting("c2")
			if len(w.away) != 1 {
				t.Fatalf("%d guest calls run long", len(w.away))
			}
			w.long = false
			w.follow(change)
			w.comeBack()
			w.work()
			if w.typ.WritesPaused && len(w.log) != 1 {
				t.Fatalf("there are %d records of a write-paused entity", len(w.log))
			}
			w.follow(unmute)
			w.work()
			w.carriedOut(a, 2)
			if by := w.log[1].Module; by != w.typ.Digest {
				t.Errorf("module %v has written, %v serves", by, w.typ.Digest)
			}
		})
	}
}

// TestFenceWaitsForRevision checks that a fence succeeds once the log has its revision,
// proposes a lost revision again, and fails if the node does not serve the
// revision.
func TestFenceWaitsForRevision(t *testing.T) {
	w := quiet(t)
	w.follow(same)
	if res := w.submit(&request.Request{Kind: request.Fence, Revision: w.newest + 1}); !errors.Is(res.Err, request.ErrModuleNotLoaded) {
		t.Errorf("a revision that is not served: %v", res.Err)
	}
	fence := func() *asked {
		a := &asked{}
		w.core.submit(w.now, []*request.Request{{Kind: request.Fence, Revision: w.newest, Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: a}})
		w.core.endTurn()
		return a
	}
	a := fence()
	if w.drop(); a.got != nil {
		t.Fatalf("its proposal was lost: %+v", a.got)
	}
	w.core.expire()
	w.work()
	if a.got == nil || a.got.Err != nil || w.revision != w.newest {
		t.Errorf("it was lost at first: %+v", a.got)
	}
	w.follow(same)
	if a = fence(); a.got != nil {
		t.Fatalf("%+v", a.got)
	}
	w.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: w.term + 5})
	if _, lost := errors.AsType[*sharding.NotLeaderError](a.got.Err); !lost {
		t.Errorf("its shard was lost: %v", a.got.Err)
	}
}
