package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal"
)

func (w *Window) has(l *Limits, id journal.CommandID, now int64) bool {
	_, _, ok := w.Find(l, id, now)
	return ok
}

func id(i int) journal.CommandID { return journal.CommandID(fmt.Sprintf("c%d", i)) }

// TestWindowForgetsByNumber tests the limit for the number of commands: one
// command below, at and above the limit.
func TestWindowForgetsByNumber(t *testing.T) {
	l := Limits{Commands: 100, ReplyBytes: 1 << 20, ClientMaxAge: 1 << 40, ServerMaxAge: 1 << 40}
	var d Window
	for n := 1; n <= 101; n++ {
		d.Add(&l, Command{ID: id(n), RecordedAt: int64(n)})
		first := d.has(&l, id(1), int64(n))
		if first != (n <= 100) {
			t.Fatalf("after %d commands the first is remembered: %v", n, first)
		}
		if !d.has(&l, id(n), int64(n)) {
			t.Fatalf("command %d is forgotten at once", n)
		}
	}
}

// TestWindowForgetsByReplyBytes checks that the oldest commands are forgotten
// once the replies exceed their limit.
func TestWindowForgetsByReplyBytes(t *testing.T) {
	l := Limits{Commands: 100, ReplyBytes: 300, ClientMaxAge: 1 << 40, ServerMaxAge: 1 << 40}
	var d Window
	for n := 1; n <= 4; n++ {
		d.Add(&l, Command{ID: id(n), Reply: make([]byte, 100)})
	}
	for n := 1; n <= 4; n++ {
		if d.has(&l, id(n), 0) != (n > 1) {
			t.Errorf("command %d is remembered: %v", n, n == 1)
		}
	}
}

// TestWindowForgetsByLogClock checks that commands are forgotten at their
// maximum age, to the nanosecond: a day for client ids, five minutes for
// server ids.
func TestWindowForgetsByLogClock(t *testing.T) {
	l := DefaultLimits()
	var d Window
	d.Add(&l, Command{ID: "client", RecordedAt: 1000})
	d.Add(&l, Command{ID: "server", RecordedAt: 1000, Server: true})
	for _, c := range []struct {
		id  journal.CommandID
		age int64
	}{{"client", 24 * 3600 * 1e9}, {"server", 300 * 1e9}} {
		if !d.has(&l, c.id, 1000+c.age) || d.has(&l, c.id, 1001+c.age) {
			t.Errorf("the id of the %s is not remembered for %d ns", c.id, c.age)
		}
	}
}

// TestWindowIsAFunctionOfTheRecords checks that a replica which replays the
// last records remembers the same commands if these records are enough, and
// that the index agrees with a scan.
func TestWindowIsAFunctionOfTheRecords(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	l := Limits{Commands: 40, ReplyBytes: 2000, ClientMaxAge: 500, ServerMaxAge: 50}
	var all []Command
	var live Window
	now := int64(0)
	for n := range 2000 {
		now += int64(rnd.IntN(20))
		r := Command{ID: id(n), Reply: make([]byte, rnd.IntN(100)), RecordedAt: now, Server: rnd.IntN(4) == 0}
		all = append(all, r)
		live.Add(&l, r)
		if n%50 != 0 {
			continue
		}
		var replayed Window
		for _, r := range all {
			replayed.Add(&l, r)
		}
		for i := max(0, n-60); i <= n; i++ {
			a, _, okA := live.Find(&l, id(i), now)
			b, _, okB := replayed.Find(&l, id(i), now)
			if okA != okB || a.RecordedAt != b.RecordedAt {
				t.Fatalf("after %d commands, %s: live %v %v, replayed %v %v", n, id(i), okA, a, okB, b)
			}
		}
	}
}

// TestWindowMatchesList checks that a window, which packs, indexes and
// compacts its commands, finds the same commands as a plain list.
func TestWindowMatchesList(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		l := Limits{Commands: 5 + rnd.IntN(100), ReplyBytes: 500 + rnd.IntN(5000), ClientMaxAge: 200 + rnd.Int64N(1000), ServerMaxAge: 100}
		var d Window
		var list []Command
		now := int64(0)
		name := func() journal.CommandID {
			switch n := rnd.IntN(300); n % 3 {
			case 0:
				return journal.CommandID(fmt.Sprintf("%032x", n))
			case 1:
				return journal.CommandID(append(make([]byte, 15), byte(n/3))) // has the same bytes as a packed hexadecimal id
			default:
				return id(n)
			}
		}
		for step := range 3000 {
			now += rnd.Int64N(10)
			if d.many != nil && step%1000 == 999 { // places are about to wrap around
				d.many.compact()
				d.many.base = math.MaxUint32 - uint32(len(d.many.data)) - uint32(rnd.IntN(200))
				d.many.index(len(d.many.slots))
			}
			r := Command{ID: name(), Hash: rnd.Uint64(), RecordedAt: now, Sequence: journal.Sequence(step), Events: uint16(rnd.IntN(9)), Server: rnd.IntN(3) == 0}
			if n := rnd.IntN(120); n > 0 {
				r.Reply = make([]byte, n)
				r.Reply[0] = byte(step)
			}
			bytes, gone := len(r.Reply), false
			for _, x := range list {
				bytes += len(x.Reply)
			}
			for len(list) > 0 && (len(list) >= l.Commands || bytes > l.ReplyBytes || now-list[0].RecordedAt > l.age(list[0].Server)) {
				gone = gone || len(list) >= l.Commands || bytes > l.ReplyBytes || !list[0].Server
				bytes -= len(list[0].Reply)
				list = list[1:]
			}
			if final := d.Add(&l, r); final != gone {
				t.Fatalf("seed %d, step %d: it says that all before is forgotten: %v", seed, step, final)
			}
			list = append(list, r)
			first, _ := d.Oldest()
			if d.Count() != len(list) || first != list[0].Sequence {
				t.Fatalf("seed %d, step %d: %d commands from %d on, want %d from %d on", seed, step, d.Count(), first, len(list), list[0].Sequence)
			}
			var ids []journal.CommandID
			d.each(func(id []byte) { ids = append(ids, journal.CommandID(id)) })
			for i, x := range list {
				if ids[i] != x.ID {
					t.Fatalf("seed %d, step %d: command %d is %q, want %q", seed, step, i, ids[i], x.ID)
				}
			}
			asked := name()
			var want Command
			for _, x := range list {
				if x.ID == asked {
					want = x
				}
			}
			known := want.ID != "" && now-want.RecordedAt <= l.age(want.Server)
			got, _, ok := d.Find(&l, asked, now)
			want.ID = "" // Find does not return the id
			if ok != known || ok && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d, step %d: %q is %v %v, want %v %v", seed, step, asked, ok, got, known, want)
			}
		}
	}
}

// TestWindowFromBatchesReleasesMemory checks that a window built from the many
// batches of a long history takes no more memory than its commands need.
func TestWindowFromBatchesReleasesMemory(t *testing.T) {
	l := Limits{Commands: 1000, ReplyBytes: 1 << 20, ClientMaxAge: 1 << 40, ServerMaxAge: 1 << 40}
	var w Window
	grown := int64(0)
	for n := range 200 {
		var b Batch
		for k := range 20 {
			b.Add(&journal.Record{CommandID: id(20*n + k), RecordedAt: int64(n), Reply: make([]byte, 10_000)})
		}
		w.AddAll(&l, b, func(bool) *Filter { return nil })
		grown += w.Growth()
	}
	if commands, replies := w.Size(); commands != l.ReplyBytes/10_000 || replies > l.ReplyBytes {
		t.Errorf("%d commands with %d bytes", commands, replies)
	}
	if grown != w.Weight() || grown > 3*int64(l.ReplyBytes) {
		t.Errorf("it takes %d bytes, %d by its growth", w.Weight(), grown)
	}
	if !w.has(&l, id(20*200-1), 0) || !w.has(&l, id(20*200-100), 0) || w.has(&l, id(20*200-l.ReplyBytes/10_000-1), 0) {
		t.Error("it remembers others than the newest")
	}
}
