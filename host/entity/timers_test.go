package entity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// alarms is the log of many shards whose entities have timers. It also
// performs the loads of these entities. Its commits take time.
type alarms struct {
	*bench
	t         *testing.T
	shards    int
	timers    map[sharding.ShardID][]journal.Timer // set timers, by due time
	entries   []alarmEntry
	made      int           // number of entries so far
	slow      time.Duration // duration of a commit
	slowest   time.Duration // maximum lateness
	fired     []int64       // due times of the fired timers, in order
	loads     []*load       // held back while slowLoads is set
	slowLoads bool
	scans     []*timers.Scan
}

type alarmEntry struct {
	flight
	shard sharding.ShardID
	at    time.Time
}

// Bounds of package timers.
const (
	timersBurst  = 20 * time.Millisecond // how long the rate accumulates
	timersWindow = 32                    // minimum number of a shard's timers that are read at a time
	timersCold   = 32                    // maximum number of fired timers whose entities are being loaded
)

func newAlarms(t *testing.T, shards int) *alarms { return pacedAlarms(t, shards, 0) }

// TimerFired notes the latest timer.
func (a *alarms) TimerFired(late time.Duration) { a.slowest = max(a.slowest, late) }

// pacedAlarms returns alarms with the given timer rate.
func pacedAlarms(t *testing.T, shards, rate int, spans ...timers.Spans) *alarms {
	a := &alarms{bench: &bench{}, t: t, shards: shards, timers: map[sharding.ShardID][]journal.Timer{}}
	typ := &Type{Name: "t", Instantiate: func(context.Context) (Guest, error) { return &counter{sums: map[uint64]int64{}}, nil }}
	opts := Options{TimerRate: rate, Journal: a, Histories: a, Types: oneType{typ}, PassivateAfter: time.Hour, TimerObserver: a}
	for _, s := range spans {
		opts.TimerSpans = s
	}
	a.core = newCore(opts, a)
	a.core.now = time.Unix(1_700_000_000, 0)
	return a
}

// set gives each shard the given number of timers, of different entities, that
// become due within a second.
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
		a.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: shard, Term: term, Self: true})
		a.core.event(&coreEvent{Kind: eventTermStarted, Shard: shard, Term: term})
	}
}

func (a *alarms) Propose(shard sharding.ShardID, fence sharding.Term, n uint64, data []byte) error {
	a.made++
	a.entries = append(a.entries, alarmEntry{flight{fence, n, data}, shard, a.core.now.Add(a.slow)})
	return nil
}

func (a *alarms) scan(s *timers.Scan) {
	s.Do(context.Background(), a)
	a.scans = append(a.scans, s)
}

func (a *alarms) start(l *load) {
	if a.slowLoads {
		a.loads = append(a.loads, l)
		return
	}
	a.core.onChunk(l, &historyChunk{Last: true})
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

// commit applies the entries that are old enough.
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
		a.core.event(&coreEvent{Kind: eventProposalDone, Shard: f.shard, Term: f.term, Number: f.proposal})
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

// step advances the clock by a millisecond and submits the requests of other
// callers.
func (a *alarms) step(others ...*request.Request) {
	c := a.core
	c.now = c.now.Add(time.Millisecond)
	scans := a.scans
	a.scans = nil
	for _, s := range scans {
		c.event(&coreEvent{Kind: timersRead, scan: s})
	}
	a.commit()
	c.submit(c.now, others)
	c.runTurns()
	c.endTurn()
}

// other returns a command of a caller.
func (a *alarms) other(n int) *request.Request {
	return &request.Request{Kind: request.Command, Shard: 1, Entity: sharding.EntityID{Type: "t", ID: "other"}, Name: "add", ID: journal.CommandID(fmt.Sprint("other-", n)), ExpectedSequence: request.NoExpectation, Done: a.bench}
}

// TestTimersShareEntries checks that timers of many shards that are due at the
// same time need few log entries.
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

// TestTimersArePaced checks that due timers fire at the right rate. While
// there are other requests and commits are slow, timers fire at their minimum
// rate, never faster, and roughly in the order of their due times. Without
// other requests they fire faster.
func TestTimersArePaced(t *testing.T) {
	const shards, each, total = 64, 100, 64 * 100
	run := func(t *testing.T, slow time.Duration, busy bool) (took int, a *alarms) {
		a = pacedAlarms(t, shards, 2500)
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
			if most := float64(rate) * (float64(took)/1000 + timersBurst.Seconds()); busy && float64(len(a.fired)) > most {
				t.Fatalf("%d timers have fired after %d ms, at most %v may have", len(a.fired), took, most)
			}
		}
		if c := a.core; c.timers.Counts() != (timers.Counts{Fired: total}) {
			t.Errorf("afterwards %+v", c.timers.Counts())
		}
		return took, a
	}
	t.Run("others wait", func(t *testing.T) {
		took, a := run(t, 2*timers.Slow, true)
		if took > total*1000/a.core.opts.TimerRate*11/10+200 {
			t.Errorf("%d timers took %d ms", total, took)
		}
		if late := a.slowest; late < 100*time.Millisecond || late > time.Duration(took)*time.Millisecond {
			t.Errorf("the latest timer was %s late", late)
		}
		// Timers are read in windows, so some timers are overtaken by later timers,
		// but at most by as many as fit into the windows of all shards.
		disorder := 0
		sorted := slices.Sorted(slices.Values(a.fired))
		for i, due := range a.fired {
			at, _ := slices.BinarySearchFunc(sorted, due, cmp.Compare[int64])
			disorder = max(disorder, at-i)
		}
		if disorder > 2*shards*timersWindow {
			t.Errorf("a timer fired %d places too early", disorder)
		}
	})
	t.Run("others do not wait", func(t *testing.T) {
		if took, a := run(t, time.Millisecond, true); took > total*1000/a.core.opts.TimerRate*11/10+200 {
			t.Errorf("%d timers took %d ms", total, took)
		}
	})
	t.Run("no others", func(t *testing.T) {
		if took, _ := run(t, 2*timers.Slow, false); took > 1300 {
			t.Errorf("%d timers took %d ms of a second", total, took)
		}
	})
}

// TestTimersLeaveLoadersToCallers checks that only a few entities are loaded
// for timers at a time, so that a caller's entity does not wait for all of
// them.
func TestTimersLeaveLoadersToCallers(t *testing.T) {
	a := newAlarms(t, 8)
	a.slowLoads = true
	a.set(50)
	a.core.now = a.core.now.Add(time.Second)
	a.lead(1)
	for range 100 {
		a.step()
	}
	if len(a.loads) != timersCold || a.core.timers.Counts().Cold != timersCold {
		t.Fatalf("%d entities are being loaded for timers, want %d", len(a.loads), timersCold)
	}
	a.step(a.other(1))
	if len(a.loads) != timersCold+1 {
		t.Fatal("a caller's entity is not being loaded")
	}
	for n := 0; a.left() > 0; n++ {
		if n > 10_000 {
			t.Fatalf("%d timers never fire", a.left())
		}
		if len(a.loads) > 0 {
			l := a.loads[0]
			a.loads = a.loads[1:]
			a.core.event(&coreEvent{Kind: chunkRead, load: l, chunk: &historyChunk{Last: true}})
		}
		a.step()
	}
	if a.core.timers.Counts().Cold != 0 || a.done != 1 {
		t.Errorf("afterwards %+v, %d callers answered", a.core.timers.Counts(), a.done)
	}
}

// TestStepDownDropsTimersReadAhead checks that an executor that stops leading
// keeps no timers, and that it fires each of the remaining timers once when it
// leads again.
func TestStepDownDropsTimersReadAhead(t *testing.T) {
	a := newAlarms(t, 8)
	a.slow = 5 * time.Millisecond
	a.set(200)
	a.lead(1)
	for range 20 {
		a.step(a.other(0))
	}
	for a.core.now = a.core.now.Add(time.Second); a.core.timers.Counts().Ahead == 0; {
		a.step(a.other(0))
	}
	for s := range a.shards {
		a.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: sharding.ShardID(s + 1), Term: 2})
	}
	if n := a.core.timers.Counts(); n != (timers.Counts{Fired: n.Fired, Scans: n.Scans}) {
		t.Fatalf("an executor that leads nothing has %+v", n)
	}
	a.entries = nil // drop the entries of the previous term
	a.lead(3)
	for n := 0; a.left() > 0; n++ {
		if n > 10_000 {
			t.Fatalf("%d timers never fire", a.left())
		}
		a.step()
	}
	if len(a.fired) != 8*200 || a.core.timers.Counts().Scans != len(a.scans) {
		t.Errorf("%d timers have fired, %d reads are under way", len(a.fired), a.core.timers.Counts().Scans)
	}
}

// TestTimerOfUnknownCommandWaits checks that nothing is written while the
// module does not have a timer's command, and that each timer fires once as
// soon as a module has it.
func TestTimerOfUnknownCommandWaits(t *testing.T) {
	a := newAlarms(t, 2)
	with := a.core.opts.Types.(oneType).t
	without := *with
	without.Commands = map[string]bool{"other": true}
	a.core.opts.Types = oneType{&without}
	a.set(3)
	a.lead(1)
	for range 5_000 {
		a.step()
	}
	if a.left() != 6 || a.made != 0 || a.core.timers.Counts().Fired != 0 {
		t.Fatalf("%d of 6 timers are left, %d entries were made, %+v", a.left(), a.made, a.core.timers.Counts())
	}
	a.core.opts.Types = oneType{with}
	for n := 0; a.left() > 0; n++ {
		if n > 400_000 {
			t.Fatalf("%d timers have not fired", a.left())
		}
		a.step()
	}
	if len(a.fired) != 6 {
		t.Errorf("%d timers have fired", len(a.fired))
	}
}
