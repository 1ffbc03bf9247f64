package entity

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// clocks are the time that passes and what the leaders' clocks say of it.
type clocks struct {
	passed time.Duration
	pace   time.Duration // of a step
	differ time.Duration // how far apart the clocks of leaders are
	off    time.Duration // the clock of this one

	servers bool // some commands get their ids from the server
}

func (w *world) elapse(d time.Duration) {
	w.passed += d
	w.now = w.now.Add(d)
	w.core.now = w.now
}

// anotherClock gives a new leader a clock of its own.
func (w *world) anotherClock() {
	if w.differ == 0 {
		return
	}
	off := time.Duration(w.rnd.Int64N(int64(w.differ)))
	w.now = w.now.Add(off - w.off)
	w.off, w.core.now = off, w.now
}

// retries counts what became of commands that were sent again.
type retries struct{ carriedOut, known, forgotten int }

func (n *retries) count(c *client, r *Request) {
	switch {
	case errors.Is(r.Result.Err, ErrForgotten) && !r.Again:
		c.w.problem("command %s was forgotten before it was known", c.id)
	case errors.Is(r.Result.Err, ErrForgotten):
		n.forgotten++
	case c.again && r.Result.Err == nil && r.Result.Duplicate:
		n.known++
	case c.again && r.Result.Err == nil:
		n.carriedOut++
	}
}

// TestRetriesTakeEffectOnce gives entities windows of a few commands, or of some
// seconds, so that they forget what is sent again later, and leaders clocks that differ: what
// the model's log has is there once all the same, and what was not forgotten is
// carried out or answered.
func TestRetriesTakeEffectOnce(t *testing.T) {
	n := *modelSeeds
	if testing.Short() {
		n = 60
	}
	var sum retries
	for seed := *modelSeed; seed < *modelSeed+n; seed++ {
		w := newWorld(t, seed)
		w.core.opts.Window.Commands = 2 + int(seed%4)
		w.pace = time.Duration(1 + seed%3*40)
		if seed%2 == 0 { // forgotten by age
			w.core.opts.Window = Window{Commands: 4 + int(seed%60), ReplyBytes: 20 + int(seed%90), ClientMaxAge: int64(3 * time.Second), ServerMaxAge: int64(2 * time.Second)}
			w.pace, w.servers = time.Duration(40+seed%3*40), true
		}
		w.differ = time.Duration(seed%3) * clocksAgree / 2
		w.play(600)
		if len(w.problems) > 0 {
			t.Fatalf("seed %d (replay with -model.seed=%d -model.seeds=1): %s", seed, seed, w.problems[0])
		}
		sum.carriedOut += w.retries.carriedOut
		sum.known += w.retries.known
		sum.forgotten += w.retries.forgotten
	}
	t.Logf("of commands sent again %d were carried out, %d known, %d forgotten", sum.carriedOut, sum.known, sum.forgotten)
	if n >= 60 && (sum.carriedOut == 0 || sum.known == 0 || sum.forgotten == 0) {
		t.Error("the runs show too little of retries")
	}
}

// again sends a command of entity x whose first attempt was some time ago.
func (w *world) again(id string, age time.Duration) Result {
	w.t.Helper()
	return w.submit(&Request{
		Kind: Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"), ID: journal.CommandID(id),
		Again: true, First: w.now.Add(-age),
	})
}

// TestForgottenCommandsAreRefused sends a command each second to an entity that
// remembers six: in memory, after it was folded, loaded from its snapshot with
// and without a filter, and with a new leader, a retry is carried out if its
// first attempt is younger than all that is forgotten, and refused if it is
// not. A first attempt is carried out always.
func TestForgottenCommandsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filter int // ids above which a snapshot has one
		then   func(*world)
	}{
		{"in memory", 128, func(*world) {}},
		{"folded", 128, func(w *world) {
			w.elapse(time.Minute)
			w.core.opts.FoldAfter = time.Second
			w.core.look(1)
			w.core.passivateIdle()
			if w.core.shard(worldShard).folds.len != 1 {
				w.t.Fatal("it is not folded")
			}
		}},
		{"loaded", 128, (*world).leaveAndLoad},
		{"loaded with a filter", 3, (*world).leaveAndLoad},
		{"with a new leader", 128, (*world).handOver},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := quiet(t)
			w.core.opts.Window.Commands = 6
			w.core.opts.FilterAbove, w.core.opts.SnapshotEvents = tt.filter, 6
			w.core.opts.PassivateAfter = time.Hour
			const n = 12 // the last snapshot is of the last one: nothing is read behind it
			for i := range n {
				w.elapse(time.Second)
				if res := w.ask(Command, "add", fmt.Sprintf("c%d", i)); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			sent := w.passed
			tt.then(w)
			since := w.passed - sent
			if res := w.again("lost", 9*time.Second+since); !errors.Is(res.Err, ErrForgotten) {
				t.Errorf("a command of which nobody knows: %+v", res)
			}
			if res := w.again("c3", 9*time.Second+since); !errors.Is(res.Err, ErrForgotten) {
				t.Errorf("a forgotten command: %+v", res)
			}
			if res := w.again("c9", 3*time.Second+since); !res.Duplicate {
				t.Errorf("a remembered command: %+v", res)
			}
			if res := w.again("late", time.Second+since/2); res.Err != nil || res.Duplicate || int(res.Sequence) != n+1 {
				t.Errorf("a retry that is younger than all that is forgotten: %+v", res)
			}
			if res := w.ask(Command, "add", "new"); res.Err != nil || int(res.Sequence) != n+2 {
				t.Errorf("a first attempt: %+v", res)
			}
			if n := w.core.stats.Forgotten; n != 2 {
				t.Errorf("%d were refused, want 2", n)
			}
			if len(w.problems) > 0 {
				t.Error(w.problems[0])
			}
		})
	}
}

// leaveAndLoad has the entity leave memory and be loaded from its snapshot.
func (w *world) leaveAndLoad() {
	w.t.Helper()
	loads := w.core.stats.SnapshotLoads
	w.ask(Passivate, "", "")
	if res := w.ask(Query, "sum", ""); res.Err != nil || w.core.stats.SnapshotLoads != loads+1 {
		w.t.Fatalf("%+v, %d loads from a snapshot", res, w.core.stats.SnapshotLoads-loads)
	}
}

// TestRetriesOfYoungEntities: where nothing is forgotten, any retry is carried
// out, however old.
func TestRetriesOfYoungEntities(t *testing.T) {
	w := quiet(t)
	for i := range 100 {
		if res := w.again(fmt.Sprintf("c%d", i), time.Hour); res.Err != nil || res.Duplicate {
			t.Fatalf("command %d: %+v", i, res)
		}
	}
}

// TestFirstTriedIsNoLater holds the time that is taken for a first attempt
// against the time that the log clock had then, for leaders whose clocks differ
// and are set.
func TestFirstTriedIsNoLater(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	clock := func(n int) int64 { return at.Add(ms(n)).UnixNano() }
	for _, tt := range []struct {
		name   string
		led    int   // when this lane began to lead, by its clock
		before int64 // the log clock then
		now    int   // by its clock
		age    int
		latest int64 // the log clock at the first attempt
		exact  bool  // the answer is near it
	}{
		{"within a term", 0, clock(-50), 5000, 2000, clock(3000), true},
		{"just sent", 0, clock(-50), 5000, 0, clock(5000), true},
		{"behind the log clock", 0, clock(9000), 5000, 2000, clock(9000), false},
		{"behind the log clock, which goes on", 0, clock(1000), 5000, 2000, clock(3000), true},
		// The clock of the leader before was an hour behind.
		{"before a leap", 3_600_000, clock(1000), 3_600_500, 1500, clock(0), false},
		{"after a leap", 3_600_000, clock(1000), 3_600_500, 300, clock(3_600_200), true},
		// The clock of the leader before was an hour ahead.
		{"before a standstill", 500, clock(3_600_000), 900, 900, clock(3_599_500), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCore(Options{}, nil, nil)
			s := &shard{clock: tt.before, led: leads{at.Add(ms(tt.led)), tt.before}}
			c.now = at.Add(ms(tt.now))
			got := c.firstTried(s, &Request{First: c.now.Add(-ms(tt.age))}, c.logNow(s))
			if got > tt.latest {
				t.Errorf("%s after the first attempt", time.Duration(got-tt.latest))
			}
			if early := time.Duration(tt.latest - got); tt.exact && early > ms(tt.age/4)+2*onTheWay {
				t.Errorf("%s before the first attempt", early)
			}
		})
	}
}

// history is commands that an entity carried out, by random.
func history(rnd *rand.Rand, n int) (all []remembered) {
	now := int64(time.Second)
	for i := range n {
		if now += rnd.Int64N(int64(300 * time.Millisecond)); rnd.IntN(40) == 0 {
			now += rnd.Int64N(int64(5 * time.Second)) // a quiet time
		}
		all = append(all, remembered{
			id: id(i), reply: make([]byte, rnd.IntN(40)), recordedAt: now, sequence: journal.Sequence(i + 1), events: 1, server: rnd.IntN(3) == 0,
		})
	}
	return all
}

// TestRecalledWindowsTellWhatIsForgotten: of a window that was built from the
// records since some snapshot's, every command that is not in it is no younger
// than what the entity says that it has forgotten. Where room was left it says
// more than the time of the first record.
func TestRecalledWindowsTellWhatIsForgotten(t *testing.T) {
	older := 0
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		w := Window{Commands: 5 + rnd.IntN(60), ReplyBytes: 200 + rnd.IntN(2000), ClientMaxAge: int64(6*time.Second) + rnd.Int64N(int64(10*time.Second)), ServerMaxAge: int64(6 * time.Second)}
		all := history(rnd, 2+rnd.IntN(300)>>rnd.IntN(8))
		taken, late := len(all)-rnd.IntN(len(all))>>rnd.IntN(8), all[len(all)-1].recordedAt+rnd.Int64N(int64(time.Second))
		var live dedupe
		for i := range all[:taken] {
			live.add(&w, all[i])
		}
		from, _ := live.oldest()
		c := newCore(Options{Window: w}, nil, nil)
		c.now = time.Unix(0, late)
		e := &entity{shard: c.shard(worldShard)}
		var read recollection
		for i := range all[from-1:] {
			r := &all[int(from)-1+i]
			n := nameOf(r.id)
			read.packed = appendPacked(read.packed, &n, r)
			read.count++
		}
		c.noteAll(e, read)
		before := all[from-1].recordedAt + rnd.Int64N(2) // the first record's, which may be nobody's command
		c.recalled(e, before)
		for i := range all {
			if _, ok, _ := e.seen.find(&w, all[i].id, late); !ok && all[i].recordedAt > e.seen.forgot {
				t.Fatalf("seed %d: command %d of %d is not known, and younger than what is forgotten", seed, i, taken)
			}
		}
		if e.seen.forgot < before {
			older++
		}
	}
	if older < 20 {
		t.Errorf("only %d windows said more than their first record", older)
	}
}

// TestRetriesWhereNothingCameBefore: an entity that got sends alone before a
// snapshot has forgotten no command for that. How long ago it could have is all
// that is known.
func TestRetriesWhereNothingCameBefore(t *testing.T) {
	w := quiet(t)
	w.core.opts.SnapshotEvents = 3
	w.elapse(time.Hour)
	for n := range uint64(6) {
		w.elapse(time.Second)
		w.deliver(n + 1)
	}
	w.leaveAndLoad()
	if res := w.again("young", time.Minute); res.Err != nil || res.Duplicate {
		t.Errorf("a retry of a minute ago: %+v", res)
	}
	w.leaveAndLoad()
	if res := w.again("young", time.Minute); !res.Duplicate {
		t.Errorf("a retry of what was carried out: %+v", res)
	}
	if res := w.again("old", 10*time.Minute); !errors.Is(res.Err, ErrForgotten) {
		t.Errorf("a retry of ten minutes ago: %+v", res)
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestRetriesAreHeldAgainstTheWholeWindow: a full window of which a load has read
// the end alone has forgotten what was carried out shortly before.
func TestRetriesAreHeldAgainstTheWholeWindow(t *testing.T) {
	w := quiet(t)
	w.core.opts.Window.Commands, w.core.opts.FilterAbove, w.core.opts.SnapshotEvents = 20, 3, 6
	const n = 40
	for i := range n {
		w.elapse(time.Second)
		w.ask(Command, "add", fmt.Sprintf("c%d", i))
	}
	w.leaveAndLoad()
	e := w.core.entity(w.core.shard(worldShard), sharding.EntityID{Type: "tally", ID: "x"})
	if read, _ := e.seen.size(); !e.rest.partial || read >= 20 {
		t.Fatalf("%d commands were read", read)
	}
	for _, lost := range []string{"lost", "c10"} {
		if res := w.again(lost, 30*time.Second); !errors.Is(res.Err, ErrForgotten) {
			t.Errorf("command %s again: %+v", lost, res)
		}
	}
}

// deliver carries out a send to entity x.
func (w *world) deliver(number uint64) {
	w.t.Helper()
	between := pair{sharding.EntityID{Type: "tally", ID: "s"}, sharding.EntityID{Type: "tally", ID: "x"}}
	w.post.all[between] = append(w.post.all[between], journal.Send{Source: between.from, Destination: between.to, Number: number, Command: "add", Payload: []byte("1")})
	res := w.submit(&Request{
		Kind: Deliver, Entity: between.to, Name: "add", Payload: []byte("1"), ID: SendCommand(between.from, number), ServerID: true,
		Delivery: &Delivery{Source: between.from, Number: number, After: number - 1},
	})
	if res.Err != nil {
		w.t.Fatal(res.Err)
	}
}
