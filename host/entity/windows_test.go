package entity

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestWindowMemoryIsBounded checks that idempotency windows stay within their
// memory limit, whichever callers fill them. Evicted entities still know
// their commands, and entities without large windows stay in memory.
func TestWindowMemoryIsBounded(t *testing.T) {
	w := quiet(t)
	w.core.opts.WindowBytes, w.core.opts.ExecutorBytes, w.core.opts.PassivateAfter = 64<<10, 1<<30, time.Hour
	turns := &coreTurns{core: w.core}
	w.tell("small")
	peak := int64(0)
	const entities, each = 100, 40
	for i := range entities {
		for k := range each {
			if res := w.askOf("e"+strconv.Itoa(i), request.Command, "add", fmt.Sprintf("%0100d", i*each+k)); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		w.now = w.now.Add(time.Millisecond)
		if at, _ := turns.Next(); w.core.windows.bytes > w.core.opts.WindowBytes && at.After(w.now.Add(time.Millisecond)) {
			t.Fatalf("%d bytes, and the next tick is in %v", w.core.windows.bytes, at.Sub(w.now))
		}
		turns.Tick(w.now)
		peak = max(peak, w.core.windows.bytes)
	}
	if most := w.core.opts.WindowBytes; peak > most || peak < most/2 {
		t.Errorf("%d bytes of windows, at most %d are allowed", peak, most)
	}
	w.sumOfWindows()
	small := sharding.EntityID{Type: "tally", ID: "small"}
	if w.core.residents.find(w.core.shards[worldShard], small, w.core.key(small)) == nil {
		t.Error("an entity without a large window has left")
	}
	for i := range entities {
		id := "e" + strconv.Itoa(i)
		if res := w.askOf(id, request.Command, "add", fmt.Sprintf("%0100d", i*each)); res.Err != nil || !res.Duplicate || string(res.Payload) != "1" {
			t.Fatalf("%s: tried again: %+v", id, res)
		}
		turns.Tick(w.now)
	}
	w.sumOfWindows()
	w.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: w.core.shards[worldShard].term + 1})
	for range 10 {
		turns.Take(w.now, nil, nil)
	}
	if n := len(w.core.windows.list); n != 0 || w.core.windows.bytes != 0 {
		t.Errorf("after the shard has left: %d windows, %d bytes", n, w.core.windows.bytes)
	}
}

// sumOfWindows checks the counted bytes of windows against their actual sizes.
func (w *world) sumOfWindows() {
	w.t.Helper()
	sum, large := int64(0), 0
	for _, e := range w.core.shards[worldShard].entities.All() {
		if _, small := e.seen.Small(); !small {
			sum, large = sum+e.seen.Weight(), large+1
		}
	}
	if sum != w.core.windows.bytes || large != len(w.core.windows.list) || large != len(w.core.windows.at) {
		w.t.Errorf("%d windows of %d bytes are counted, there are %d of %d", len(w.core.windows.list), w.core.windows.bytes, large, sum)
	}
}
