package entity

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestAdmittedRequestsWaitAtProposedBytesLimit checks that requests admitted
// before the shard reached its limit of proposed bytes wait like later
// requests, and that all requests are executed in order when there is room
// again.
func TestAdmittedRequestsWaitAtProposedBytesLimit(t *testing.T) {
	w := largeWorld(t)
	w.sizes.state = 60_000
	const entities, each = 8, 16
	w.core.opts.ProposedBytes, w.core.opts.BatchBytes = 300_000, 100_000
	for i := range entities {
		w.askOf(fmt.Sprint(i), request.Command, "add", fmt.Sprintf("first-%d", i))
	}
	var reqs []*request.Request
	var got []*asked
	for n := range each {
		for i := range entities {
			a := &asked{}
			got = append(got, a)
			reqs = append(reqs, &request.Request{
				Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: fmt.Sprint(i)}, Name: "large", Payload: []byte("1"),
				ID: journal.CommandID(fmt.Sprintf("%d-%d", i, n)), Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: a,
			})
		}
	}
	w.core.submit(w.now, reqs)
	s, most := w.core.shard(worldShard), 0
	for range 1000 {
		w.core.runTurns()
		w.core.endTurn()
		if most = max(most, s.log.Bytes()); s.log.Bytes() > w.core.opts.ProposedBytes+w.core.opts.BatchBytes+w.sizes.state {
			t.Fatalf("%d bytes are proposed", s.log.Bytes())
		}
		w.commit()
	}
	for i, a := range got {
		if a.got == nil || a.got.Err != nil {
			t.Fatalf("request %d: %+v", i, a.got)
		}
	}
	if most < w.core.opts.ProposedBytes || len(s.stalled) > 0 {
		t.Errorf("at most %d bytes were proposed, %d entities are stalled", most, len(s.stalled))
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}
