package entity

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestWindowIsReadOnlyForPossibleRetries checks that a load from a snapshot
// reads the commands before the snapshot only if a new command may be a retry
// of one of them. After that, all of these commands are known.
func TestWindowIsReadOnlyForPossibleRetries(t *testing.T) {
	w := quiet(t)
	w.core.opts.FilterAbove = 4
	const n = 60
	for i := range n {
		w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.handOver()
	loads := w.core.stats.Loads
	fresh := 0
	for i := range 5 { // the filter may take one of these ids for an old id
		if res := w.ask(request.Command, "add", fmt.Sprintf("new-%d", i)); res.Err != nil || res.Duplicate || int(res.Sequence) != n+i+1 {
			t.Fatalf("a new command: %+v", res)
		}
		fresh++
	}
	if reloads := w.core.stats.Loads - loads; reloads > 2 || w.records > 40 && reloads == 1 {
		t.Errorf("%d loads and %d records for %d new commands", reloads, w.records, fresh)
	}
	w.handOver()
	for i := range n {
		res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
		if !res.Duplicate || int(res.Sequence) != i+1 {
			t.Fatalf("command %d again: %+v", i, res)
		}
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestServerIDsDoNotShortenWindow checks an entity that was loaded without its
// window: a command with a server id is forgotten by age long before earlier
// commands with client ids that are only in the filter.
func TestServerIDsDoNotShortenWindow(t *testing.T) {
	w := quiet(t)
	w.core.opts.FilterAbove = 4
	const n, clients = 60, 40
	for i := range n {
		w.submit(&request.Request{
			Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"),
			ID: id(i), ServerID: i >= clients, // the snapshot follows a command with a server id
		})
	}
	w.handOver()
	w.elapse(6 * time.Minute)
	for i := range 3 {
		w.ask(request.Command, "add", fmt.Sprintf("new-%d", i))
	}
	for _, i := range []int{0, clients / 2, clients - 1} {
		if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i)); !res.Duplicate || int(res.Sequence) != i+1 {
			t.Errorf("command %d again: %+v", i, res)
		}
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}
