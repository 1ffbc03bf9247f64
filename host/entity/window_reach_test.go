package entity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// clocks is the real time and the clocks of the leaders.
type clocks struct {
	passed time.Duration
	pace   time.Duration // duration of a step
	differ time.Duration // maximum difference between leaders' clocks
	off    time.Duration // offset of the current leader's clock

	servers bool // some commands get their ids from the server
}

func (w *world) elapse(d time.Duration) {
	w.passed += d
	w.now = w.now.Add(d)
	w.core.now = w.now
}

// anotherClock gives a new leader a different clock.
func (w *world) anotherClock() {
	if w.differ == 0 {
		return
	}
	off := time.Duration(w.rnd.Int64N(int64(w.differ)))
	w.now = w.now.Add(off - w.off)
	w.off, w.core.now = off, w.now
}

// retries counts the outcomes of retries.
type retries struct{ carriedOut, known, forgotten int }

func (n *retries) count(c *client, r *request.Request) {
	switch {
	case errors.Is(r.Result.Err, request.ErrForgotten) && !r.Again:
		c.w.problem("command %s was forgotten before it was known", c.id)
	case errors.Is(r.Result.Err, request.ErrForgotten):
		n.forgotten++
	case c.retry && r.Result.Err == nil && r.Result.Duplicate:
		n.known++
	case c.retry && r.Result.Err == nil:
		n.carriedOut++
	}
}

// TestRetriesTakeEffectAtMostOnce gives entities windows of a few commands or
// seconds, so that they forget commands that are retried later, and leaders
// with different clocks. Each command must still be in the model's log at most
// once, and a command that was not forgotten must be executed or answered.
func TestRetriesTakeEffectAtMostOnce(t *testing.T) {
	n := *modelSeeds
	if testing.Short() {
		n = 60
	}
	var sum retries
	for seed := *modelSeed; seed < *modelSeed+n; seed++ {
		w := newWorld(t, seed)
		w.core.opts.Window.Commands = 2 + int(seed%4)
		w.pace = time.Duration(1 + seed%3*40)
		if seed%2 == 0 { // commands are forgotten by age
			w.core.opts.Window = window.Limits{Commands: 4 + int(seed%60), ReplyBytes: 20 + int(seed%90), ClientMaxAge: int64(3 * time.Second), ServerMaxAge: int64(2 * time.Second)}
			w.pace, w.servers = time.Duration(40+seed%3*40), true
		}
		w.differ = time.Duration(seed%3) * window.ClocksAgree / 2
		w.play(600)
		if len(w.problems) > 0 {
			t.Fatalf("seed %d (replay with -model.seed=%d -model.seeds=1): %s", seed, seed, w.problems[0])
		}
		sum.carriedOut += w.retries.carriedOut
		sum.known += w.retries.known
		sum.forgotten += w.retries.forgotten
	}
	t.Logf("of the retries %d were executed, %d known, %d forgotten", sum.carriedOut, sum.known, sum.forgotten)
	if n >= 60 && (sum.carriedOut == 0 || sum.known == 0 || sum.forgotten == 0) {
		t.Error("the runs show too little of retries")
	}
}

// retry sends a command to entity x whose first attempt was age ago.
func (w *world) retry(id string, age time.Duration) request.Result {
	w.t.Helper()
	return w.submit(&request.Request{
		Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"), ID: journal.CommandID(id),
		Again: true, First: w.now.Add(-age),
	})
}

// TestForgottenRetryIsRejected sends a command each second to an entity that
// remembers six. A retry must be executed if its first attempt is younger than
// all forgotten commands, and rejected otherwise: in memory, after hibernation,
// loaded from a snapshot with and without a filter, and under a new leader. A
// first attempt is always executed.
func TestForgottenRetryIsRejected(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filter int // ids above which a snapshot has a filter
		then   func(*world)
	}{
		{"in memory", 128, func(*world) {}},
		{"dormant", 128, func(w *world) {
			w.elapse(time.Minute)
			w.core.opts.HibernateAfter = time.Second
			w.core.residents.scheduleSweep(1)
			w.core.residents.passivateIdle()
			if w.core.shard(worldShard).hibernated.Len() != 1 {
				w.t.Fatal("it is not dormant")
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
			const n = 12 // the last snapshot is of the last command, so no later record is read
			for i := range n {
				w.elapse(time.Second)
				if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i)); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			sent := w.passed
			tt.then(w)
			since := w.passed - sent
			if res := w.retry("lost", 9*time.Second+since); !errors.Is(res.Err, request.ErrForgotten) {
				t.Errorf("a command that may have been forgotten: %+v", res)
			}
			if res := w.retry("c3", 9*time.Second+since); !errors.Is(res.Err, request.ErrForgotten) {
				t.Errorf("a forgotten command: %+v", res)
			}
			if res := w.retry("c9", 3*time.Second+since); !res.Duplicate {
				t.Errorf("a remembered command: %+v", res)
			}
			if res := w.retry("late", time.Second+since/2); res.Err != nil || res.Duplicate || int(res.Sequence) != n+1 {
				t.Errorf("a retry that is younger than all that is forgotten: %+v", res)
			}
			if res := w.ask(request.Command, "add", "new"); res.Err != nil || int(res.Sequence) != n+2 {
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

// TestRetryBehindSkippedRecordsIsRejected builds the window of an entity without
// events. If its records since a command were too many to be read, although the
// window is nearly empty, a retry of the command must be rejected, because the
// load does not know whether the command was executed.
func TestRetryBehindSkippedRecordsIsRejected(t *testing.T) {
	for _, skipped := range []bool{true, false} {
		w := quiet(t)
		e := &entity{shard: w.core.shard(worldShard)}
		e.shard.clock = w.now.UnixNano()
		begins := e.shard.logNow() - int64(time.Minute) // younger than what a window forgets by age
		l := &load{}
		w.core.noteChunk(e, l, &historyChunk{Seen: window.Batch{Before: begins, Skipped: skipped}})
		e.windowBuilt(l.before, l.skip)
		if e.seen.Reaches(begins-int64(time.Second)) == skipped {
			t.Errorf("skipped %v: a command before the first record that was read is known not to be executed: %v", skipped, !skipped)
		}
	}
}

// leaveAndLoad evicts the entity and loads it from its snapshot.
func (w *world) leaveAndLoad() {
	w.t.Helper()
	loads := w.core.stats.SnapshotLoads
	w.ask(request.Passivate, "", "")
	if res := w.ask(request.Query, "sum", ""); res.Err != nil || w.core.stats.SnapshotLoads != loads+1 {
		w.t.Fatalf("%+v, %d loads from a snapshot", res, w.core.stats.SnapshotLoads-loads)
	}
}

// TestRetryIsExecutedIfNothingWasForgotten checks that a retry of any age is
// executed if the entity has forgotten no command.
func TestRetryIsExecutedIfNothingWasForgotten(t *testing.T) {
	w := quiet(t)
	for i := range 100 {
		if res := w.retry(fmt.Sprintf("c%d", i), time.Hour); res.Err != nil || res.Duplicate {
			t.Fatalf("command %d: %+v", i, res)
		}
	}
}

// TestRetryAfterSnapshotWithoutCommands checks an entity that got only messages
// before a snapshot, so that it has forgotten no command. The only known bound
// is the maximum age.
func TestRetryAfterSnapshotWithoutCommands(t *testing.T) {
	w := quiet(t)
	w.core.opts.SnapshotEvents = 3
	w.elapse(time.Hour)
	for n := range uint64(6) {
		w.elapse(time.Second)
		w.deliver(n + 1)
	}
	w.leaveAndLoad()
	if res := w.retry("young", time.Minute); res.Err != nil || res.Duplicate {
		t.Errorf("a retry of a minute ago: %+v", res)
	}
	w.leaveAndLoad()
	if res := w.retry("young", time.Minute); !res.Duplicate {
		t.Errorf("a retry of an executed command: %+v", res)
	}
	if res := w.retry("old", 10*time.Minute); !errors.Is(res.Err, request.ErrForgotten) {
		t.Errorf("a retry of ten minutes ago: %+v", res)
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestRetryIsCheckedAgainstWholeWindow checks a load that has read only the end
// of a full window: earlier commands must not count as never executed.
func TestRetryIsCheckedAgainstWholeWindow(t *testing.T) {
	w := quiet(t)
	w.core.opts.Window.Commands, w.core.opts.FilterAbove, w.core.opts.SnapshotEvents = 20, 3, 6
	const n = 40
	for i := range n {
		w.elapse(time.Second)
		w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.leaveAndLoad()
	e := w.core.residents.entity(w.core.shard(worldShard), sharding.EntityID{Type: "tally", ID: "x"})
	if read, _ := e.seen.Size(); !e.extra.beyond.Partial || read >= 20 {
		t.Fatalf("%d commands were read", read)
	}
	for _, lost := range []string{"lost", "c10"} {
		if res := w.retry(lost, 30*time.Second); !errors.Is(res.Err, request.ErrForgotten) {
			t.Errorf("command %s again: %+v", lost, res)
		}
	}
}

// deliver executes a message on entity x.
func (w *world) deliver(number uint64) {
	w.t.Helper()
	between := pair{sharding.EntityID{Type: "tally", ID: "s"}, sharding.EntityID{Type: "tally", ID: "x"}}
	w.messages.all[between] = append(w.messages.all[between], journal.Message{Source: between.from, Destination: between.to, Number: number, Command: "add", Payload: []byte("1")})
	res := w.submit(&request.Request{
		Kind: request.Deliver, Entity: between.to, Name: "add", Payload: []byte("1"), ID: request.SendCommand(between.from, number), ServerID: true,
		Delivery: &request.Delivery{Source: between.from, Number: number, After: number - 1},
	})
	if res.Err != nil {
		w.t.Fatal(res.Err)
	}
}
