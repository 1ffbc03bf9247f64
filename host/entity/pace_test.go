package entity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// alarms is a log of many shards whose entities have timers, and their loader.
// Its commits take a while of the clock.
type alarms struct {
	*bench
	t       *testing.T
	shards  int
	timers  map[sharding.ShardID][]journal.Timer // set, by due time
	entries []alarmEntry
	made    int           // entries, ever
	slow    time.Duration // of a commit
	slowest time.Duration // lateness
	fired   []int64       // due times, in order
	loads   []*load       // held, while hold
	hold    bool
	scans   []*timerScan
}

type alarmEntry struct {
	flight
	shard sharding.ShardID
	at    time.Time
}

func newAlarms(t *testing.T, shards int) *alarms {
	a := &alarms{bench: &bench{}, t: t, shards: shards, timers: map[sharding.ShardID][]journal.Timer{}}
	typ := &Type{Name: "t", Instantiate: func(context.Context) (Guest, error) { return &counter{sums: map[uint64]int64{}}, nil }}
	a.core = newCore(Options{Journal: a, Histories: a, Types: oneType{typ}, PassivateAfter: time.Hour, TimerFired: func(late time.Duration) { a.slowest = max(a.slowest, late) }}, a, a)
	a.core.now = time.Unix(1_700_000_000, 0)
	return a
}

// set gives each shard some timers, each of another entity, due over a second.
func (a *alarms) set(each int) {
	for s := range a.shards {
		shard := sharding.ShardID(s + 1)
		for i := range each {
			due := a.core.now.Add(time.Duration(i) * time.Second / time.Duration(each)).UnixNano()
			e := sharding.EntityID{Type: "t", ID: fmt.Sprintf("%d-%d", shard, i)}
			a.timers[shard] = append(a.timers[shard], journal.Timer{Entity: e, Name: "wake", Due: due, Command: []byte("ring")})
		}
	}
}

func (a *alarms) lead(term sharding.Term) {
	for s := range a.shards {
		shard := sharding.ShardID(s + 1)
		a.core.event(&event{kind: evLeader, shard: shard, term: term, self: true})
		a.core.event(&event{kind: evTerm, shard: shard, term: term})
	}
}

func (a *alarms) Propose(shard sharding.ShardID, fence sharding.Term, n uint64, data []byte) error {
	a.made++
	a.entries = append(a.entries, alarmEntry{flight{fence, n, data}, shard, a.core.now.Add(a.slow)})
	return nil
}

func (a *alarms) scan(s *timerScan) {
	s.read(context.Background(), a)
	a.scans = append(a.scans, s)
}

func (a *alarms) start(l *load) {
	if a.hold {
		a.loads = append(a.loads, l)
		return
	}
	a.core.loaded(&loadChunk{load: l, last: true})
}

func (a *alarms) DueTimers(_ context.Context, shard sharding.ShardID, by int64, limit int,
	skip func(sharding.EntityID, string, int64) bool) (due []journal.Timer, next int64, err error) {
	for _, t := range a.timers[shard] {
		switch {
		case skip(t.Entity, t.Name, t.Due):
		case t.Due > by || len(due) == limit:
			return due, t.Due, nil
		default:
			due = append(due, t)
		}
	}
	return due, math.MaxInt64, nil
}

// commit applies what is in the log for long enough.
func (a *alarms) commit() {
	for len(a.entries) > 0 && !a.entries[0].at.After(a.core.now) {
		f := a.entries[0]
		a.entries = a.entries[1:]
		e, err := journal.DecodeEntry(f.data)
		if err != nil {
			a.t.Fatal(err)
		}
		for b := e.Body; len(b) > 0 && e.Kind == journal.EntryRecords; {
			raw, rest, err := journal.SplitRecord(b)
			var r journal.Record
			if err == nil {
				err = r.Decode(raw)
			}
			if err != nil {
				a.t.Fatal(err)
			}
			b = rest
			if source := r.Section(journal.SectionSource); source != nil {
				a.ring(f.shard, r.Entity)
			}
		}
		a.core.event(&event{kind: evDecided, shard: f.shard, term: f.term, number: f.proposal})
	}
}

func (a *alarms) ring(shard sharding.ShardID, e sharding.EntityID) {
	i := slices.IndexFunc(a.timers[shard], func(t journal.Timer) bool { return t.Entity == e })
	if i < 0 {
		a.t.Fatalf("the timer of %s fired twice", e)
	}
	a.fired = append(a.fired, a.timers[shard][i].Due)
	a.timers[shard] = slices.Delete(a.timers[shard], i, i+1)
}

func (a *alarms) left() (n int) {
	for _, ts := range a.timers {
		n += len(ts)
	}
	return n
}

// step lets a millisecond go by, in which others ask for something.
func (a *alarms) step(others ...*Request) {
	c := a.core
	c.now = c.now.Add(time.Millisecond)
	scans := a.scans
	a.scans = nil
	for _, s := range scans {
		c.event(&event{kind: evTimers, scan: s})
	}
	a.commit()
	c.submit(c.now, others)
	c.pump()
	c.endTurn()
}

// other is a command of a caller.
func (a *alarms) other(n int) *Request {
	return &Request{Kind: Command, Shard: 1, Entity: sharding.EntityID{Type: "t", ID: "other"}, Name: "add", ID: journal.CommandID(fmt.Sprint("other-", n)), ExpectedSequence: NoExpectation, Done: a.bench}
}

// TestTimersShareEntries: timers of many shards that are due at once take few
// entries of their logs.
func TestTimersShareEntries(t *testing.T) {
	const shards, each, total = 64, 100, 64 * 100
	a := newAlarms(t, shards)
	a.slow = time.Millisecond
	a.set(each)
	a.core.now = a.core.now.Add(time.Second)
	a.lead(1)
	others := 0
	for n := 0; a.left() > 0; n++ {
		if n > 10_000 {
			t.Fatalf("%d timers have not fired", a.left())
		}
		a.step(a.other(n))
		others++
	}
	if a.made-others > total/12 {
		t.Errorf("%d timers took %d entries", total, a.made-others)
	}
}

// TestTimersArePaced: timers that are due at once fire at the rate that is
// always theirs while others ask and commits are slow, never above it, and in
// about the order of their due times; without others they fire faster.
func TestTimersArePaced(t *testing.T) {
	const shards, each, total = 64, 100, 64 * 100
	run := func(t *testing.T, slow time.Duration, busy bool) (took int, a *alarms) {
		a = newAlarms(t, shards)
		a.core.opts.TimerRate = 2500
		a.slow = slow
		a.set(each)
		a.lead(1)
		rate := a.core.opts.TimerRate
		for took = 1; a.left() > 0; took++ {
			if took > 60_000 {
				t.Fatalf("%d timers have not fired after a minute", a.left())
			}
			if busy {
				a.step(a.other(took))
			} else {
				a.step()
			}
			if most := float64(rate) * (float64(took)/1000 + paceBurst.Seconds()); busy && float64(len(a.fired)) > most {
				t.Fatalf("%d timers have fired after %d ms, at most %v may have", len(a.fired), took, most)
			}
		}
		if c := a.core; c.stats.Timers != total || c.stats.TimersDue != 0 || c.pace.ahead != 0 || c.pace.admitted != 0 || c.pace.cold != 0 || len(c.pace.windows) != 0 {
			t.Errorf("afterwards %+v", c.pace)
		}
		return took, a
	}
	t.Run("others wait", func(t *testing.T) {
		took, a := run(t, 2*paceSlow, true)
		if took > total*1000/a.core.opts.TimerRate*11/10+200 {
			t.Errorf("%d timers took %d ms", total, took)
		}
		if late := a.slowest; late < 100*time.Millisecond || late > time.Duration(took)*time.Millisecond {
			t.Errorf("the latest timer was %s late", late)
		}
		// A window is read at a time: a timer is overtaken by no more of its
		// elders than fit into the windows, and by few.
		disorder := 0
		sorted := slices.Sorted(slices.Values(a.fired))
		for i, due := range a.fired {
			at, _ := slices.BinarySearchFunc(sorted, due, cmp.Compare[int64])
			disorder = max(disorder, at-i)
		}
		if disorder > 2*shards*windowLeast {
			t.Errorf("a timer fired %d places too early", disorder)
		}
	})
	t.Run("others do not wait", func(t *testing.T) {
		if took, a := run(t, time.Millisecond, true); took > total*1000/a.core.opts.TimerRate*11/10+200 {
			t.Errorf("%d timers took %d ms", total, took)
		}
	})
	t.Run("no others", func(t *testing.T) {
		if took, _ := run(t, 2*paceSlow, false); took > 1300 {
			t.Errorf("%d timers took %d ms of a second", total, took)
		}
	})
}

// TestPaceFollowsTheOthers: what the rate does by how long commits take and by
// whether anybody else asks.
func TestPaceFollowsTheOthers(t *testing.T) {
	const least = 1000.0
	for _, c := range []struct {
		name    string
		from    float64
		asked   int
		waiting bool
		slowest time.Duration
		want    float64
	}{
		{"nobody asks", least, 0, false, time.Second, 1250},
		{"nobody asks for long", least * paceMost, 0, false, 0, least * paceMost},
		{"others ask", 2000, 1, false, 0, least},
		{"others wait for answers", 2000, 0, true, paceStrained, least},
		{"the machine is overloaded", 4000, 1, false, paceStrained + 1, least / 2},
		{"for long", least / paceYield, 1, false, time.Second, least / paceYield},
		{"not any more", least / paceYield, 1, false, paceStrained, least},
	} {
		now := int64(time.Hour)
		p := pacer{rate: c.from, counted: now, looked: now, asked: c.asked}
		p.committed(int64(c.slowest))
		p.bring(now+int64(paceLook), least, c.waiting)
		if p.rate != c.want {
			t.Errorf("%s: from %v to %v, want %v", c.name, c.from, p.rate, c.want)
		}
		if p.asked != 0 || p.slowest != 0 || p.alone() != (c.want > least) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	p := pacer{rate: 8000, counted: 1, looked: 1}
	if p.bring(1+int64(paceAnew)+1, least, false); p.rate != least || p.allowed != least*paceBurst.Seconds() || p.spurt < p.allowed {
		t.Errorf("after a rest: %+v", p)
	}
	for range 100 {
		p.bring(p.counted+int64(paceAnew), least, true)
	}
	if p.allowed != least*(paceDebt+paceBurst).Seconds() || p.spurt != paceSpurt*least*paceBurst.Seconds() {
		t.Errorf("what adds up: %+v", p)
	}
	slow, fired := pacer{}, 0
	for now := int64(time.Hour); now < int64(time.Hour+10*time.Second); now += int64(paceTick) {
		if slow.bring(now, 1, true); slow.admits() {
			slow.allowed, slow.spurt = slow.allowed-1, slow.spurt-1
			fired++
		}
	}
	if fired < 8 || fired > 10 {
		t.Errorf("%d timers fired in 10 s at one a second: %+v", fired, slow)
	}
}

// TestTimersLetOthersGoFirst: while others wait for commits no timer is
// admitted, for a while: what they have missed is made up for.
func TestTimersLetOthersGoFirst(t *testing.T) {
	const least = 1000.0
	now := int64(time.Hour)
	p := pacer{rate: least, counted: now, looked: now}
	admitted := 0
	during := func(d, commit time.Duration) (n int) {
		for end := now + int64(d); now < end; {
			now += int64(time.Millisecond)
			p.committed(int64(commit))
			p.bring(now, least, true)
			for p.admits() {
				p.admit()
				n++
			}
			p.admitted = 0 // they fire at once
		}
		admitted += n
		return n
	}
	during(time.Second, paceSlow)
	if n := during(paceDebt-paceBurst, paceSlow+1); n != 0 {
		t.Errorf("%d timers while others wait", n)
	}
	if n, most := during(paceBurst, paceSlow), int(paceSpurt*least*2*paceBurst.Seconds()); n < most/2 || n > most {
		t.Errorf("%d timers in a burst after that, at most %d", n, most)
	}
	if during(time.Second, paceSlow); admitted < int(least*2.28) || admitted > int(least*2.35) {
		t.Errorf("%d timers in 2.3 s", admitted)
	}
	if n := during(2*time.Second, paceStrained); n < int(least*(2-paceDebt.Seconds()-paceBurst.Seconds())) || n > int(2*least) {
		t.Errorf("%d timers in 2 s in which others wait", n)
	}
	for p.admitted = 0; p.admits(); {
		p.admit()
	}
	p.spurt, p.allowed, p.latest = 100, 100, 0
	if p.admitted = int(least * paceBurst.Seconds()); p.admits() {
		t.Error("more timers are on their way than fire in a burst")
	}
}

// TestTimersLeaveLoadersToCallers: few of the timers whose entities are not in
// memory have them loaded at a time, so that a caller's entity does not wait
// for all of them.
func TestTimersLeaveLoadersToCallers(t *testing.T) {
	a := newAlarms(t, 8)
	a.hold = true
	a.set(50)
	a.core.now = a.core.now.Add(time.Second)
	a.lead(1)
	for range 100 {
		a.step()
	}
	if len(a.loads) != coldTimers || a.core.pace.cold != coldTimers {
		t.Fatalf("%d entities are being loaded for timers, want %d", len(a.loads), coldTimers)
	}
	a.step(a.other(1))
	if len(a.loads) != coldTimers+1 {
		t.Fatal("a caller's entity is not being loaded")
	}
	for n := 0; a.left() > 0; n++ {
		if n > 10_000 {
			t.Fatalf("%d timers never fire", a.left())
		}
		if len(a.loads) > 0 {
			l := a.loads[0]
			a.loads = a.loads[1:]
			a.core.event(&event{kind: evChunk, chunk: &loadChunk{load: l, last: true}})
		}
		a.step()
	}
	if a.core.pace.cold != 0 || a.done != 1 {
		t.Errorf("afterwards %+v, %d callers answered", a.core.pace, a.done)
	}
}

// TestTimersReadAheadAreForgotten: who stops leading has no timers any more,
// and who begins again fires each that has not fired, once.
func TestTimersReadAheadAreForgotten(t *testing.T) {
	a := newAlarms(t, 8)
	a.slow = 5 * time.Millisecond
	a.set(200)
	a.lead(1)
	for range 20 {
		a.step(a.other(0))
	}
	for a.core.now = a.core.now.Add(time.Second); a.core.pace.ahead == 0; {
		a.step(a.other(0))
	}
	for s := range a.shards {
		a.core.event(&event{kind: evLeader, shard: sharding.ShardID(s + 1), term: 2})
	}
	if c := a.core; c.pace.ahead != 0 || c.stats.TimersDue != 0 || len(c.pace.windows) != 0 || c.pace.admitted != 0 || c.pace.cold != 0 {
		t.Fatalf("a lane that leads nothing has %+v, %d timers due", c.pace, c.stats.TimersDue)
	}
	a.entries = nil // of the term that is over
	a.lead(3)
	for n := 0; a.left() > 0; n++ {
		if n > 10_000 {
			t.Fatalf("%d timers never fire", a.left())
		}
		a.step()
	}
	if len(a.fired) != 8*200 || a.core.pace.scans != len(a.scans) {
		t.Errorf("%d timers have fired, %d reads are under way", len(a.fired), a.core.pace.scans)
	}
}
