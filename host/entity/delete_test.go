package entity

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/journal"
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

// TestReadOnlyNodesDeleteNothing.
func TestReadOnlyNodesDeleteNothing(t *testing.T) {
	w := quiet(t)
	w.ask(Command, "add", "a")
	w.core.readOnly = func() bool { return true }
	if res := w.ask(Delete, "", "x"); !errors.Is(res.Err, ErrReadOnly) {
		t.Errorf("%+v", res)
	}
}
