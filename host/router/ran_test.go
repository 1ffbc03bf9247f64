package router

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestRanMatchesMap checks that ran never returns a lower number than the
// entity's real number, and that it returns the exact number of the entities
// with the highest numbers of their set.
func TestRanMatchesMap(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var r ran
		exact := make(map[uint64]uint64)
		for n := uint64(100); n < 1000; n++ {
			e, number := 1+rnd.Uint64N(1+seed*8), n-rnd.Uint64N(40) // outcomes come out of order
			r.note(e, number)
			exact[e] = max(exact[e], number)
			e = 1 + rnd.Uint64N(1+seed*8)
			got, newer := r.of(e), 0
			for other, number := range exact {
				if other%ranSets == e%ranSets && number > exact[e] {
					newer++
				}
			}
			if got < exact[e] || newer < ranWays && exact[e] > 0 && got != exact[e] {
				t.Fatalf("seed %d: entity %d of %d is at %d, ran says %d; %d of its set are newer", seed, e, len(exact), exact[e], got, newer)
			}
		}
	}
}

// While a command is out, commands of 30 other entities complete. The command
// is sent again when it comes back, unless a later command of its own entity
// has completed.
func TestCommandsOfOtherEntitiesDoNotOvertake(t *testing.T) {
	for _, own := range []bool{false, true} {
		l := &limits{requests: 1000, bytes: 1 << 20, total: &budget{limit: 1 << 20}, minPause: time.Millisecond, maxPause: time.Millisecond, self: "n1", seed: maphash.MakeSeed()}
		f := newShardRoute(1, l)
		now := time.Unix(1000, 0)
		f.updateLead(lead{to: target{node: "n1", self: true}, quorum: true})
		for f.state != flowing {
			f.next(now, nil, batchRequests)
		}
		command := func(id string) *request.Request {
			return &request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: id}}
		}
		first := command("first")
		f.admit(first)
		for i := range 30 {
			q := command(fmt.Sprintf("other-%d", i))
			if i == 15 && own {
				q.Entity.ID = "first"
			}
			f.admit(q)
			f.complete(q, now)
		}
		first.Result.Err = &sharding.NotLeaderError{Shard: 1}
		if v, want := f.complete(first, now), map[bool]decision{false: hold, true: answer}[own]; v != want {
			t.Errorf("a later command of its own: %v; the decision is %d, want %d", own, v, want)
		}
	}
}
