package entity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

func (d *dedupe) has(w *Window, id journal.CommandID, now int64) bool {
	_, _, ok := d.find(w, id, now)
	return ok
}

func id(i int) journal.CommandID { return journal.CommandID(fmt.Sprintf("c%d", i)) }

// TestWindowForgetsByNumber: one below the bound, at it and one above.
func TestWindowForgetsByNumber(t *testing.T) {
	w := Window{Commands: 100, ReplyBytes: 1 << 20, ClientMaxAge: 1 << 40, ServerMaxAge: 1 << 40}
	var d dedupe
	for n := 1; n <= 101; n++ {
		d.add(&w, remembered{id: id(n), recordedAt: int64(n)})
		first := d.has(&w, id(1), int64(n))
		if first != (n <= 100) {
			t.Fatalf("after %d commands the first is remembered: %v", n, first)
		}
		if !d.has(&w, id(n), int64(n)) {
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
	for n := 1; n <= 4; n++ {
		if d.has(&w, id(n), 0) != (n > 1) {
			t.Errorf("command %d is remembered: %v", n, n == 1)
		}
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
		if !d.has(&w, c.id, 1000+c.age) || d.has(&w, c.id, 1001+c.age) {
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
			a, _, okA := live.find(&w, id(i), now)
			b, _, okB := replayed.find(&w, id(i), now)
			if okA != okB || a.recordedAt != b.recordedAt {
				t.Fatalf("after %d commands, %s: live %v %v, replayed %v %v", n, id(i), okA, a, okB, b)
			}
		}
	}
}

// TestWindowAgreesWithAList: packed, indexed and moved about, a window holds
// what a plain list of the same commands does.
func TestWindowAgreesWithAList(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		w := Window{Commands: 5 + rnd.IntN(100), ReplyBytes: 500 + rnd.IntN(5000), ClientMaxAge: 200 + rnd.Int64N(1000), ServerMaxAge: 100}
		var d dedupe
		var list []remembered
		now := int64(0)
		name := func() journal.CommandID {
			switch n := rnd.IntN(300); n % 3 {
			case 0:
				return journal.CommandID(fmt.Sprintf("%032x", n))
			case 1:
				return journal.CommandID(append(make([]byte, 15), byte(n/3))) // the bytes that one above is packed as
			default:
				return id(n)
			}
		}
		for step := range 3000 {
			now += rnd.Int64N(10)
			if d.many != nil && step%1000 == 999 { // places are about to wrap round
				d.many.compact()
				d.many.base = math.MaxUint32 - uint32(len(d.many.data)) - uint32(rnd.IntN(200))
				d.many.index(len(d.many.slots))
			}
			r := remembered{id: name(), hash: rnd.Uint64(), recordedAt: now, sequence: journal.Sequence(step), events: uint16(rnd.IntN(9)), server: rnd.IntN(3) == 0}
			if n := rnd.IntN(120); n > 0 {
				r.reply = make([]byte, n)
				r.reply[0] = byte(step)
			}
			bytes, gone := len(r.reply), false
			for _, x := range list {
				bytes += len(x.reply)
			}
			for len(list) > 0 && (len(list) >= w.Commands || bytes > w.ReplyBytes || now-list[0].recordedAt > w.age(list[0].server)) {
				gone = gone || len(list) >= w.Commands || bytes > w.ReplyBytes || !list[0].server
				bytes -= len(list[0].reply)
				list = list[1:]
			}
			if final := d.add(&w, r); final != gone {
				t.Fatalf("seed %d, step %d: it says that all before is forgotten: %v", seed, step, final)
			}
			list = append(list, r)
			first, _ := d.oldest()
			if d.count() != len(list) || first != list[0].sequence {
				t.Fatalf("seed %d, step %d: %d commands from %d on, want %d from %d on", seed, step, d.count(), first, len(list), list[0].sequence)
			}
			var ids []journal.CommandID
			d.each(func(id []byte) { ids = append(ids, journal.CommandID(id)) })
			for i, x := range list {
				if ids[i] != x.id {
					t.Fatalf("seed %d, step %d: command %d is %q, want %q", seed, step, i, ids[i], x.id)
				}
			}
			asked := name()
			var want remembered
			for _, x := range list {
				if x.id == asked {
					want = x
				}
			}
			known := want.id != "" && now-want.recordedAt <= w.age(want.server)
			got, _, ok := d.find(&w, asked, now)
			want.id = "" // who asks knows it
			if ok != known || ok && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d, step %d: %q is %v %v, want %v %v", seed, step, asked, ok, got, known, want)
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
