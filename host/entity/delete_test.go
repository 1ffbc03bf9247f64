package entity

import (
	"errors"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestDeleteWritesTombstoneOncePerID checks that a deletion writes a tombstone
// for readers of the journal, that a retry has no effect even if the entity was
// created again, and that the deletion of a missing entity writes a record
// without an event.
func TestDeleteWritesTombstoneOncePerID(t *testing.T) {
	w := quiet(t)
	if res := w.ask(request.Delete, "", "none"); res.Err != nil || res.Sequence != 0 {
		t.Fatalf("deleting nothing: %+v", res)
	}
	w.ask(request.Command, "add", "a")
	if res := w.ask(request.Delete, "", "none"); res.Err != nil || !res.Duplicate {
		t.Fatalf("the same request again: %+v", res)
	}
	if res := w.ask(request.Delete, "", "first"); res.Err != nil || res.Sequence != 2 || res.EventCount != 1 {
		t.Fatalf("deleting an entity: %+v", res)
	}
	last := &w.log[len(w.log)-1]
	if last.Flags != journal.FlagTombstone || last.CommandID != "first" || !last.Tombstone(0) {
		t.Errorf("a tombstone is %+v", last)
	}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "0" || res.Sequence != 2 {
		t.Errorf("a deleted entity: %+v", res)
	}
	w.ask(request.Command, "add", "b")
	if res := w.ask(request.Delete, "", "first"); !res.Duplicate || res.Sequence != 2 {
		t.Errorf("the deletion before: %+v", res)
	}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "1" || res.Sequence != 3 {
		t.Errorf("what comes after the deletion: %+v", res)
	}
	if res := w.ask(request.Delete, "", "a"); !errors.Is(res.Err, request.ErrCommandIDReused) {
		t.Errorf("the id of a command: %+v", res)
	}
}

// TestForgottenOperatorRetriesAreRejected checks that if the entity has
// forgotten an operator's request, a retry of that request is rejected, and
// neither deletes a later entity nor skips a later timer.
func TestForgottenOperatorRetriesAreRejected(t *testing.T) {
	for _, kind := range []request.Kind{request.Delete, request.SkipTimer} {
		w := quiet(t)
		w.core.opts.Window.Commands = 4
		late := func(id string, age time.Duration) request.Result {
			return w.submit(&request.Request{
				Kind: kind, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "t", ID: journal.CommandID(id), Again: true, First: w.now.Add(-age),
			})
		}
		w.ask(request.Command, "add", "a")
		if res := late("by-ann", time.Minute); res.Err != nil {
			t.Fatalf("nothing is forgotten: %+v", res)
		}
		for i := range 3 {
			w.elapse(time.Second)
			w.ask(request.Command, "add", string(id(i)))
		}
		if res := late("by-ann", 3*time.Second); !res.Duplicate {
			t.Errorf("a request that is remembered: %+v", res)
		}
		for i := range 4 {
			w.elapse(time.Second)
			w.ask(request.Command, "add", string(id(10+i)))
		}
		at := w.head("x").sequence
		if res := late("by-ann", 7*time.Second); !errors.Is(res.Err, request.ErrForgotten) || w.head("x").sequence != at {
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

// fullDisk is a disk that is full if its value is true.
type fullDisk bool

func (d fullDisk) ReadOnly() bool { return bool(d) }

func TestReadOnlyNodeRejectsDelete(t *testing.T) {
	w := quiet(t)
	w.ask(request.Command, "add", "a")
	w.core.disk = fullDisk(true)
	if res := w.ask(request.Delete, "", "x"); !errors.Is(res.Err, request.ErrReadOnly) {
		t.Errorf("%+v", res)
	}
}

// TestEntityEvictedByItsOwnRecordIsNotUsed checks a record that closes a batch
// when the log is full, so that the log refuses the batch at once. That must
// stop neither the executor nor the entity.
func TestEntityEvictedByItsOwnRecordIsNotUsed(t *testing.T) {
	w := quiet(t)
	w.core.opts.BatchBytes = 1 // each record closes its batch
	w.ask(request.Command, "add", "a")
	for _, try := range []struct {
		kind request.Kind
		name string
	}{{request.Delete, ""}, {request.Command, "delete"}, {request.Command, "checkpoint"}} {
		w.refuse = true
		if res := w.ask(try.kind, try.name, "refused-"+try.name); res.Err == nil {
			t.Errorf("%v %q takes effect without a log: %+v", try.kind, try.name, res)
		}
		if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "1" {
			t.Errorf("after %v %q: %+v", try.kind, try.name, res)
		}
	}
}
