package entity

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestFilterForgetsNoID: whatever was added may be there, however the filter
// has grown since, and most of what was not is known not to be.
func TestFilterForgetsNoID(t *testing.T) {
	f := newFilter(1)
	id := func(i int) journal.CommandID {
		return journal.CommandID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", i))
	}
	const ids = 10_000
	for i := range ids {
		if f.full() {
			f.grow()
		}
		if f.add(id(i)); i%997 == 0 {
			for j := range i + 1 {
				if !f.has(id(j)) {
					t.Fatalf("id %d is lost after %d", j, i)
				}
			}
		}
	}
	f = newFilter(ids)
	for i := range ids {
		f.add(id(i))
	}
	wrong := 0
	for i := ids; i < 2*ids; i++ {
		if f.has(id(i)) {
			wrong++
		}
	}
	if len(f.bits) > 16<<10 || wrong > ids/30 {
		t.Errorf("%d bytes, %d of %d others may be in it", len(f.bits), wrong, ids)
	}
}

// TestWindowIsReadForWhatMayBeInIt: a load from a snapshot reads the commands
// before it only when one of them comes again, and then knows them all.
func TestWindowIsReadForWhatMayBeInIt(t *testing.T) {
	w := quiet(t)
	w.core.opts.FilterAbove = 4
	const n = 60
	for i := range n {
		w.ask(Command, "add", fmt.Sprintf("c%d", i))
	}
	w.handOver()
	loads := w.core.stats.Loads
	fresh := 0
	for i := range 5 { // the filter may take one of them for an old one
		if res := w.ask(Command, "add", fmt.Sprintf("new-%d", i)); res.Err != nil || res.Duplicate || int(res.Sequence) != n+i+1 {
			t.Fatalf("a new command: %+v", res)
		}
		fresh++
	}
	if again := w.core.stats.Loads - loads; again > 2 || w.records > 40 && again == 1 {
		t.Errorf("%d loads and %d records for %d new commands", again, w.records, fresh)
	}
	w.handOver()
	for i := range n {
		res := w.ask(Command, "add", fmt.Sprintf("c%d", i))
		if !res.Duplicate || int(res.Sequence) != i+1 {
			t.Fatalf("command %d again: %+v", i, res)
		}
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestServersIDsEndNoWindow: of an entity that was loaded without its window, a
// command that the server named is forgotten by age, long before those that
// clients named and that are only in its filter.
func TestServersIDsEndNoWindow(t *testing.T) {
	w := quiet(t)
	w.core.opts.FilterAbove = 4
	const n, clients = 60, 40
	for i := range n {
		w.submit(&Request{
			Kind: Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"),
			ID: id(i), ServerID: i >= clients, // and the snapshot is of one of them
		})
	}
	w.handOver()
	w.elapse(6 * time.Minute)
	for i := range 3 {
		w.ask(Command, "add", fmt.Sprintf("new-%d", i))
	}
	for _, i := range []int{0, clients / 2, clients - 1} {
		if res := w.ask(Command, "add", fmt.Sprintf("c%d", i)); !res.Duplicate || int(res.Sequence) != i+1 {
			t.Errorf("command %d again: %+v", i, res)
		}
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}
