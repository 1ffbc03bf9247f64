package entity

import (
	"errors"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// done receives the error of an answer.
type done chan error

func (d done) Complete(r *request.Request) { d <- r.Result.Err }

// noLog is the log of executors that lead no shard.
type noLog struct{}

func (noLog) Propose(sharding.ShardID, sharding.Term, uint64, []byte) error {
	return journal.ErrStopped
}
func (noLog) ReadIndex(sharding.ShardID, uint64) error { return journal.ErrStopped }
func (noLog) Busy() bool                               { return false }

// secondShard lets the requests to shard 2 be rejected.
type secondShard struct{}

func (secondShard) Refuses(s sharding.ShardID) error {
	if s == 2 {
		return journal.ErrDamaged
	}
	return nil
}

// TestRequestsToRefusedShardAreRejected checks that requests to a refused shard are
// answered with the reason, and that other requests in the same batch continue.
func TestRequestsToRefusedShardAreRejected(t *testing.T) {
	locate := func(e sharding.EntityID) (sharding.ShardID, bool) {
		return map[string]sharding.ShardID{"a": 1, "b": 2, "c": 3}[e.ID], e.ID != "stranger"
	}
	for _, executors := range []int{1, 2} {
		r, err := NewShardRouter(ShardRouterOptions{
			Executors: executors, Shards: 3, Locate: locate, Executor: Options{Journal: noLog{}},
			Disputes: secondShard{},
		})
		if err != nil {
			t.Fatal(err)
		}
		answers, reqs := map[string]done{}, []*request.Request{}
		for _, id := range []string{"a", "b", "c", "stranger"} {
			answers[id] = make(done, 1)
			reqs = append(reqs, &request.Request{Kind: request.StaleQuery, Entity: sharding.EntityID{Type: "x", ID: id}, Done: answers[id]})
		}
		r.Submit(reqs)
		for id, answer := range answers {
			var notLeader *sharding.NotLeaderError
			select {
			case err := <-answer:
				if id == "b" && !errors.Is(err, journal.ErrDamaged) || id == "stranger" && !errors.Is(err, request.ErrNotServed) ||
					len(id) == 1 && id != "b" && !errors.As(err, &notLeader) {
					t.Errorf("%s: %v", id, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s is never answered", id)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
