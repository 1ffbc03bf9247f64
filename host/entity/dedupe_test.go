package entity

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

func id(i int) journal.CommandID { return journal.CommandID(fmt.Sprintf("c%d", i)) }

// TestWindowForgetsByNumber: one below the bound, at it and one above.
func TestWindowForgetsByNumber(t *testing.T) {
	w := Window{Commands: 100, ReplyBytes: 1 << 20, ClientMaxAge: 1 << 40, ServerMaxAge: 1 << 40}
	var d dedupe
	for n := 1; n <= 101; n++ {
		d.add(&w, remembered{id: id(n), recordedAt: int64(n)})
		first := d.find(&w, id(1), int64(n)) != nil
		if first != (n <= 100) {
			t.Fatalf("after %d commands the first is remembered: %v", n, first)
		}
		if d.find(&w, id(n), int64(n)) == nil {
			t.Fatalf("command %d is forgotten at once", n)
		}
	}
}

// TestWindowForgetsByReplyBytes counts the replies it holds.
func TestWindowForgetsByReplyBytes(t *testing.T) {
	w := Window{Commands: 100, ReplyBytes: 300, ClientMaxAge: 1 << 40, ServerMaxAge: 1 << 40}
	var d dedupe
	for n := 1; n <= 4; n++ {
		d.add(&w, remembered{id: id(n), reply: make([]byte, 100)})
	}
	if d.find(&w, id(1), 0) != nil || d.find(&w, id(2), 0) == nil || d.bytes != 300 {
		t.Fatalf("%d bytes of replies are held", d.bytes)
	}
}

// TestWindowForgetsByLogClock: a day for a client's ids, five minutes for ids
// that the server made, to the nanosecond.
func TestWindowForgetsByLogClock(t *testing.T) {
	w := DefaultWindow()
	var d dedupe
	d.add(&w, remembered{id: "client", recordedAt: 1000})
	d.add(&w, remembered{id: "server", recordedAt: 1000, server: true})
	for _, c := range []struct {
		id  journal.CommandID
		age int64
	}{{"client", 24 * 3600 * 1e9}, {"server", 300 * 1e9}} {
		if d.find(&w, c.id, 1000+c.age) == nil || d.find(&w, c.id, 1001+c.age) != nil {
			t.Errorf("the id of the %s is not remembered for %d ns", c.id, c.age)
		}
	}
}

// TestWindowIsAFunctionOfTheRecords: a replica that replays a suffix long
// enough remembers the same, and the index agrees with a scan.
func TestWindowIsAFunctionOfTheRecords(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	w := Window{Commands: 40, ReplyBytes: 2000, ClientMaxAge: 500, ServerMaxAge: 50}
	var all []remembered
	var live dedupe
	now := int64(0)
	for n := range 2000 {
		now += int64(rnd.IntN(20))
		r := remembered{id: id(n), reply: make([]byte, rnd.IntN(100)), recordedAt: now, server: rnd.IntN(4) == 0}
		all = append(all, r)
		live.add(&w, r)
		if n%50 != 0 {
			continue
		}
		var replayed dedupe
		for _, r := range all {
			replayed.add(&w, r)
		}
		for i := max(0, n-60); i <= n; i++ {
			a, b := live.find(&w, id(i), now), replayed.find(&w, id(i), now)
			if (a == nil) != (b == nil) || a != nil && a.recordedAt != b.recordedAt {
				t.Fatalf("after %d commands, %s: live %v, replayed %v", n, id(i), a, b)
			}
			if live.index != nil {
				if _, indexed := live.index[id(i)]; !indexed && a != nil {
					t.Fatalf("%s is not in the index", id(i))
				}
			}
		}
	}
}

// TestLogClockNeverRunsBack: a wall clock that is set back, or a leader whose
// clock is behind, records no earlier time.
func TestLogClockNeverRunsBack(t *testing.T) {
	w := newWorld(t, 1)
	w.elect()
	w.elect()
	ahead := w.now.UnixNano() + 5e9
	w.core.event(&event{kind: evTerm, shard: worldShard, term: w.term, clock: ahead})
	send := func(n int) {
		c := &client{w: w, id: id(n)}
		c.req = &Request{
			Entity: sharding.EntityID{Type: "tally", ID: "a"}, Shard: worldShard, Name: "add", Payload: []byte("1"),
			ID: id(n), ExpectedSequence: NoExpectation, Done: c,
		}
		w.sent[c.id] = &sent{entity: "a", name: "add", payload: "1"}
		w.core.submit(w.now, []*Request{c.req})
		for range 20 {
			w.chunk()
			w.core.pump()
			w.core.endTurn()
			w.comeBack()
			w.commit()
		}
	}
	send(0)
	w.now = w.now.Add(-1e9)
	send(1)
	w.now = w.now.Add(20e9)
	send(2)
	if len(w.log) != 3 || len(w.problems) > 0 {
		t.Fatalf("%d records, %v", len(w.log), w.problems)
	}
	if w.log[0].RecordedAt != ahead || w.log[1].RecordedAt != ahead || w.log[2].RecordedAt != w.now.UnixNano() {
		t.Fatalf("recorded at %d, %d, %d; the shard's clock was %d, the wall clock is %d",
			w.log[0].RecordedAt, w.log[1].RecordedAt, w.log[2].RecordedAt, ahead, w.now.UnixNano())
	}
}
