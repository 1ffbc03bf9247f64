package entity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestCallersShareRoomOfShard checks that a caller may use all of the room of a
// shard while it is alone, and half of it once another caller has asked, whose
// requests are then admitted. When all requests are answered, none is counted.
func TestCallersShareRoomOfShard(t *testing.T) {
	w := quiet(t)
	who := someCallers(t)
	const most = 100
	w.core.opts.ShardInFlight = most
	n := 0
	ask := func(of *principal.Principal, count int) (rejected int) {
		for range count {
			n++
			r := &request.Request{
				Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: fmt.Sprint(n)}, Name: "add", Payload: []byte("1"), Principal: of,
				ID: journal.CommandID(fmt.Sprint("c-", n)), Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: &asked{},
			}
			w.core.submit(w.now, []*request.Request{r})
			if got := r.Done.(*asked).got; got != nil && errors.Is(got.Err, request.ErrBusy) {
				rejected++
			}
		}
		return rejected
	}
	settle := func() {
		t.Helper()
		s := w.core.shard(worldShard)
		for range 10 * most {
			w.core.runTurns()
			w.core.endTurn()
			w.chunk()
			w.commit()
		}
		if s.undecided != 0 || s.callers.total != 0 {
			t.Fatalf("%d requests are undecided, %d of callers", s.undecided, s.callers.total)
		}
	}
	if got := ask(who[1], most+10); got != 10 {
		t.Errorf("%d requests of the only caller are rejected, want 10", got)
	}
	if got := ask(who[2], 1); got != 1 {
		t.Errorf("%d requests are rejected while the shard is full, want 1", got)
	}
	settle()
	if got := ask(who[1], most); got != most/2 {
		t.Errorf("%d of %d requests of the first caller are rejected, want %d", got, most, most/2)
	}
	if got := ask(who[2], most/2); got != 0 {
		t.Errorf("%d of %d requests of another caller are rejected", got, most/2)
	}
	settle()
	w.now = w.now.Add(sharedFor + time.Second)
	w.core.now = w.now
	if got := ask(who[1], most); got != 0 {
		t.Errorf("%d of %d requests of a caller that is alone again are rejected", got, most)
	}
	settle()
}
