package entity

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// someCallers returns callers, including the anonymous caller.
func someCallers(t testing.TB) []*principal.Principal {
	t.Helper()
	out := []*principal.Principal{nil}
	for i := range 3 {
		p, err := principal.New(principal.Token, fmt.Sprint("caller-", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// TestCallersShareExecutorFairly lets one caller queue 200 commands, to one
// entity or to many, and then lets each of the other callers queue 20. Each
// caller must get its share of the first decisions. Its commands to an entity
// must stay in order, even if the shard was full and deferred all commands.
func TestCallersShareExecutorFairly(t *testing.T) {
	who := someCallers(t)
	for _, entities := range []int{1, 50} {
		for _, full := range []bool{false, true} {
			w := quiet(t)
			command := func(caller, n int) *request.Request {
				id := fmt.Sprintf("%d/%d", caller, n%entities)
				return &request.Request{
					Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: id}, Name: "add", Payload: []byte("1"), Principal: who[caller],
					ID: journal.CommandID(fmt.Sprintf("%d-%d", caller, n)), Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: &asked{},
				}
			}
			for caller := range 3 {
				for n := range entities { // load the entities
					r := command(caller, n)
					r.ID += "-first"
					if res := w.submit(r); res.Err != nil {
						t.Fatal(res.Err)
					}
				}
			}
			before := len(w.log)
			var reqs []*request.Request
			for n := range 200 {
				reqs = append(reqs, command(0, n))
			}
			for n := range 20 {
				reqs = append(reqs, command(1, n), command(2, n))
			}
			w.busy = full
			w.core.submit(w.now, reqs)
			if s := w.core.shard(worldShard); full != (s.deferred.Len() == len(reqs)) {
				t.Fatalf("%d of %d are held back", s.deferred.Len(), len(reqs))
			}
			w.busy = false
			for range 1000 {
				w.core.resume(w.core.shard(worldShard))
				w.core.runTurns()
				w.core.endTurn()
				w.chunk()
				w.commit()
			}
			for _, r := range reqs {
				if got := r.Done.(*asked).got; got == nil || got.Err != nil {
					t.Fatalf("%s: %+v", r.ID, got)
				}
			}
			var first [3]int
			last := map[string]int{}
			for i, rec := range w.log[before:] {
				var caller, n int
				if _, err := fmt.Sscanf(string(rec.CommandID), "%d-%d", &caller, &n); err != nil {
					t.Fatal(err)
				}
				if i < 60 {
					first[caller]++
				}
				if at, ok := last[rec.Entity.ID]; ok && at >= n {
					t.Errorf("command %d of %s was decided before %d", at, rec.Entity.ID, n)
				}
				last[rec.Entity.ID] = n
			}
			for caller, n := range first {
				if n < 18 || n > 22 {
					t.Errorf("%d entities each, held back %v: of the first 60 decisions %d are of caller %d: %v", entities, full, n, caller, first)
				}
			}
			if len(w.problems) > 0 {
				t.Error(w.problems[0])
			}
		}
	}
}
