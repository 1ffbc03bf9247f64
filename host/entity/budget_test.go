package entity

import (
	"errors"
	"testing"
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestCommandsOverBudgetAreRejected checks that a command beyond its type's budget writes
// nothing, and returns the limit and the time to wait, while duplicates and
// queries are still answered.
func TestCommandsOverBudgetAreRejected(t *testing.T) {
	for _, name := range []string{request.LimitFuel, request.LimitBytes} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			if name == request.LimitFuel {
				w.typ.FuelBudget = NewBudget(1000) // 1,000 fuel per second; a command costs tens of thousands
			} else {
				w.typ.BytesBudget = NewBudget(10)
			}
			w.tell("a") // the command's id is 1
			records := len(w.log)
			var limited *request.RateLimitedError
			if res := w.askOf("b", request.Command, "add", "another"); !errors.As(res.Err, &limited) || !errors.Is(res.Err, request.ErrBusy) || limited.Limit != name || limited.RetryAfter <= 0 {
				t.Fatalf("a command beyond it gave %v", res.Err)
			}
			if len(w.log) != records || w.core.stats.RateLimited != 1 {
				t.Errorf("it left %d records, and is counted %d times", len(w.log)-records, w.core.stats.RateLimited)
			}
			if res := w.askOf("a", request.Query, "get", ""); res.Err != nil {
				t.Errorf("a query gave %v", res.Err)
			}
			if res := w.askOf("a", request.Command, "add", "1"); res.Err != nil || !res.Duplicate {
				t.Errorf("a known command gave %+v", res)
			}
			w.now = w.now.Add(limited.RetryAfter)
			w.tell("b")
			if len(w.problems) > 0 {
				t.Error(w.problems[0])
			}
		})
	}
}

// TestRejectedCommandsSpendFuel checks that a command that fails, or that its
// guest rejects, spends fuel and writes nothing.
func TestRejectedCommandsSpendFuel(t *testing.T) {
	for _, name := range []string{"deny", "trap"} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			w.typ.FuelBudget, w.typ.BytesBudget = NewBudget(1000), NewBudget(1)
			w.askOf("a", request.Command, name, "1")
			var limited *request.RateLimitedError
			if res := w.askOf("b", request.Command, "add", "2"); !errors.As(res.Err, &limited) || limited.Limit != request.LimitFuel {
				t.Errorf("the next command gave %v", res.Err)
			}
			if w.typ.BytesBudget.Wait(w.now.UnixNano()) != 0 {
				t.Error("it spent bytes")
			}
		})
	}
}

// TestDeliveriesOverBudgetWait checks that deliveries beyond their type's budget
// wait, that deliveries admitted before the budget was spent go back to their
// senders, and that none is lost.
func TestDeliveriesOverBudgetWait(t *testing.T) {
	w := quiet(t)
	w.now = w.now.Add(time.Hour)
	w.typ.FuelBudget = NewBudget(100_000)
	const each = 4 // deliveries executed per second, because each costs at least 26,000 fuel
	got := w.flood(1024)
	step := func(d time.Duration) (done, sentBack int) {
		w.now = w.now.Add(d)
		w.core.now = w.now
		for range 200 {
			w.core.runTurns()
			w.core.endTurn()
			w.chunk()
			w.commit()
			w.reply()
		}
		for _, a := range got {
			switch {
			case a.got == nil:
			case a.got.Err == nil:
				done++
			case errors.Is(a.got.Err, request.ErrBusy):
				sentBack++
			default:
				t.Fatalf("a delivery ended with %v", a.got.Err)
			}
		}
		return done, sentBack
	}
	first, back := step(0)
	if first < 1 || first > each {
		t.Errorf("%d deliveries were executed at once, want those of one second", first)
	}
	if back == 0 {
		t.Error("what was admitted before the budget was spent is decided all the same")
	}
	if later, _ := step(time.Second); later > 2*each {
		t.Errorf("%d deliveries were executed a second later", later)
	}
	w.core.stepDown(w.core.shard(worldShard))
	if in := w.core.intake; in.AdmittedCount() != 0 || in.Waiting() != 0 || w.core.owed != 0 {
		t.Errorf("%d are admitted, %d wait, %d requests are owed after a step-down", in.AdmittedCount(), in.Waiting(), w.core.owed)
	}
}

// TestIntakeWaitsForBudget checks that deliveries which arrive while the budget
// is spent are not admitted until it is paid.
func TestIntakeWaitsForBudget(t *testing.T) {
	w := quiet(t)
	w.now = w.now.Add(time.Hour)
	w.core.now = w.now
	w.typ.BytesBudget = NewBudget(1000)
	w.typ.BytesBudget.spend(w.now.UnixNano(), 3000)
	got := w.flood(1)
	step := func() {
		for range 200 {
			w.core.runTurns()
			w.core.endTurn()
			w.chunk()
			w.commit()
			w.reply()
		}
	}
	if step(); got[0].got != nil || w.core.intake.Waiting() != 1 {
		t.Fatalf("%+v, %d wait", got[0].got, w.core.intake.Waiting())
	}
	for range 2 {
		if want := w.now.Add(timers.LimitLook).UnixNano(); w.core.timers.At() == 0 || w.core.timers.At() > want {
			t.Errorf("the executor looks again at %d, it may at %d", w.core.timers.At(), want)
		}
		w.now = w.now.Add(timers.LimitLook)
		w.core.now = w.now
		step()
	}
	if got[0].got == nil || got[0].got.Err != nil {
		t.Errorf("once it is paid: %+v", got[0].got)
	}
}

// TestTimersOverBudgetFireLater checks that timers beyond their type's budget fire
// later, each once.
func TestTimersOverBudgetFireLater(t *testing.T) {
	a := newAlarms(t, 1)
	a.core.opts.Types.Lookup("t").FuelBudget = NewBudget(9000) // 9,000 fuel per second; a timer costs 900
	for i := range 40 {
		e := sharding.EntityID{Type: "t", ID: string(rune('a' + i))}
		a.timers[1] = append(a.timers[1], journal.Timer{Entity: e, Name: "wake", Due: a.core.now.UnixNano(), Command: []byte("ring")})
	}
	a.lead(1)
	for second, most := range []int{20, 30, 40} {
		for range 1000 {
			a.step()
		}
		if n := len(a.fired); n < most/2 || n > most+1 {
			t.Errorf("after %d seconds %d timers have fired, want about %d", second+1, n, most)
		}
	}
	for range 10_000 {
		a.step()
	}
	if a.left() != 0 {
		t.Errorf("%d timers never fire", a.left())
	}
}
