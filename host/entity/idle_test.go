package entity

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestIdleEntitiesLeaveMemory checks that an executor without work still evicts
// idle entities and closes empty instances, and that the next request finds the
// entity unchanged.
func TestIdleEntitiesLeaveMemory(t *testing.T) {
	log := &committer{in: make(chan appliedEntry, 1<<10), done: make(chan struct{}), records: map[sharding.EntityID][]journal.Record{}}
	var slept atomic.Int64
	typ := &Type{Name: "t", PassivateAfter: 20 * time.Millisecond, Instantiate: func(context.Context) (Guest, error) {
		return &sleeper{t: t, sums: map[uint64]int64{}, slept: &slept}, nil
	}}
	exec := newExecutor(Options{Journal: log, Histories: log, Types: onlyType{typ}}, nil)
	log.exec = exec
	go log.run()
	exec.LeaderChanged(1, 1, true)
	exec.NotifyApplied([]appliedEntry{{Shard: 1, Term: 1, NoOp: true}})
	for !exec.leads(1) {
		time.Sleep(time.Millisecond)
	}
	for n := 1; n <= 3; n++ {
		var a answers
		a.wg.Add(1)
		exec.Submit([]*request.Request{{
			Entity: sharding.EntityID{Type: "t", ID: "x"}, Shard: 1, Name: "add", Payload: []byte("1"),
			ID: journal.CommandID(strconv.Itoa(n)), ExpectedSequence: request.NoExpectation, Done: &a,
		}})
		a.wg.Wait()
		if res := a.got[0].Result; res.Err != nil || string(res.Payload) != strconv.Itoa(n) {
			t.Fatalf("stay %d: %q %v", n, res.Payload, res.Err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			st := exec.Stats()
			if st.Passivations >= uint64(n) && st.Resident == 0 && st.Instances == 0 && st.Entities == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("stay %d does not end: %+v", n, st)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := exec.Close(ctx); err != nil {
		t.Fatal(err)
	}
	close(log.in)
	<-log.done
}
