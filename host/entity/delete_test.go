package entity

import (
	"errors"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestDeleteEndsOneLife: a deletion leaves a tombstone that readers see, once
// under its id whatever the entity has become since; that of nothing leaves a
// record and no event.
func TestDeleteEndsOneLife(t *testing.T) {
	w := quiet(t)
	if res := w.ask(Delete, "", "none"); res.Err != nil || res.Sequence != 0 {
		t.Fatalf("deleting nothing: %+v", res)
	}
	w.ask(Command, "add", "a")
	if res := w.ask(Delete, "", "none"); res.Err != nil || !res.Duplicate {
		t.Fatalf("the same request again: %+v", res)
	}
	if res := w.ask(Delete, "", "first"); res.Err != nil || res.Sequence != 2 || res.EventCount != 1 {
		t.Fatalf("deleting a life: %+v", res)
	}
	last := &w.log[len(w.log)-1]
	if last.Flags != journal.FlagTombstone || last.CommandID != "first" || !last.Tombstone(0) {
		t.Errorf("a tombstone is %+v", last)
	}
	if res := w.ask(Query, "sum", ""); string(res.Payload) != "0" || res.Sequence != 2 {
		t.Errorf("a deleted entity: %+v", res)
	}
	w.ask(Command, "add", "b")
	if res := w.ask(Delete, "", "first"); !res.Duplicate || res.Sequence != 2 {
		t.Errorf("the deletion of a former life: %+v", res)
	}
	if res := w.ask(Query, "sum", ""); string(res.Payload) != "1" || res.Sequence != 3 {
		t.Errorf("the next life: %+v", res)
	}
	if res := w.ask(Delete, "", "a"); !errors.Is(res.Err, ErrCommandIDReused) {
		t.Errorf("the id of a command: %+v", res)
	}
}

// TestLateActsEndNothingElse: what a person asked for so long ago that the entity
// has forgotten it is refused, and does not end the next life or another timer.
func TestLateActsEndNothingElse(t *testing.T) {
	for _, kind := range []Kind{Delete, SkipTimer} {
		w := quiet(t)
		w.core.opts.Window.Commands = 4
		late := func(id string, age time.Duration) Result {
			return w.submit(&Request{
				Kind: kind, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "t", ID: journal.CommandID(id), Again: true, First: w.now.Add(-age),
			})
		}
		w.ask(Command, "add", "a")
		if res := late("by-ann", time.Minute); res.Err != nil {
			t.Fatalf("nothing is forgotten: %+v", res)
		}
		for i := range 3 {
			w.elapse(time.Second)
			w.ask(Command, "add", string(id(i)))
		}
		if res := late("by-ann", 3*time.Second); !res.Duplicate {
			t.Errorf("a request that is remembered: %+v", res)
		}
		for i := range 4 {
			w.elapse(time.Second)
			w.ask(Command, "add", string(id(10+i)))
		}
		at := w.head("x").sequence
		if res := late("by-ann", 7*time.Second); !errors.Is(res.Err, ErrForgotten) || w.head("x").sequence != at {
			t.Errorf("a request that is forgotten: %+v", res)
		}
		if res := late("by-bob", 100*time.Millisecond); res.Err != nil || res.Duplicate {
			t.Errorf("a request that is younger than all that is forgotten: %+v", res)
		}
		if len(w.problems) > 0 {
			t.Error(w.problems[0])
		}
	}
}

// TestReadOnlyNodesDeleteNothing.
func TestReadOnlyNodesDeleteNothing(t *testing.T) {
	w := quiet(t)
	w.ask(Command, "add", "a")
	w.core.readOnly = func() bool { return true }
	if res := w.ask(Delete, "", "x"); !errors.Is(res.Err, ErrReadOnly) {
		t.Errorf("%+v", res)
	}
}
