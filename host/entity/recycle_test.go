package entity

import (
	"strconv"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
)

// TestMostlyEmptyInstancesAreClosed checks that an instance is closed if it
// has grown and lost most of its entities, because a guest's memory never
// shrinks. Its remaining entities are unchanged, and an instance with more
// entities stays open.
func TestMostlyEmptyInstancesAreClosed(t *testing.T) {
	const entities = 24
	for _, c := range []struct {
		stay   int // entities that are used while the others are idle
		closed uint64
	}{{4, 1}, {12, 0}} {
		w := quiet(t)
		w.core.opts.InstanceBytes, w.core.opts.PassivateAfter = 2*entities, time.Minute
		for i := range entities {
			w.askOf(strconv.Itoa(i), request.Command, "add", "c"+strconv.Itoa(i))
		}
		if len(w.core.residents.pools.All()) != 1 {
			t.Fatalf("%d instances", len(w.core.residents.pools.All()))
		}
		w.later(40 * time.Second)
		for i := range c.stay {
			w.askOf(strconv.Itoa(i), request.Query, "sum", "")
		}
		w.later(30 * time.Second)
		if n := w.core.stats.Recycled; n != c.closed {
			t.Errorf("with %d of %d left, %d instances were closed", c.stay, entities, n)
		}
		if n := len(w.inMemory()); n != c.stay*int(1-c.closed) {
			t.Errorf("with %d of %d left, %d are in memory", c.stay, entities, n)
		}
		for i := range entities {
			if res := w.askOf(strconv.Itoa(i), request.Query, "sum", ""); string(res.Payload) != "1" {
				t.Errorf("%d: %+v", i, res)
			}
		}
	}
}
