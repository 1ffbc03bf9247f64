package entity

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cron"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// ticks counts the outcomes of schedule ticks.
type ticks struct{ fired, skipped, made int }

// period is the period of the schedules that the worlds' guests set.
const period = 100 * int64(time.Millisecond)

// source returns the timer that caused a record, as it was set.
func (w *world) source(r *journal.Record) (t journal.Timer, ok bool) {
	data := r.Section(journal.SectionSource)
	if data == nil || data[0] != journal.SourceTimer {
		return t, false
	}
	s, err := journal.DecodeTimerSource(data)
	if err != nil {
		w.t.Fatal(err)
	}
	t, ok = w.timers[timerKey{r.Entity, string(s.Name)}]
	return t, ok
}

// scheduleOf removes the schedule of a record's nth timer from the section.
func (w *world) scheduleOf(section []byte, n int) (*journal.Schedule, []byte) {
	if len(section) == 0 {
		return nil, nil
	}
	s, rest, err := journal.NextScheduleOp(section)
	if err != nil {
		w.t.Fatal(err)
	}
	if int(s.Op) != n {
		return nil, section
	}
	return &s.Schedule, rest
}

// skips reports whether the record skips a missed tick.
func (w *world) skips(r *journal.Record) bool {
	t, ok := w.source(r)
	if !ok || t.Schedule == nil || abi.Missed(t.Schedule.Missed) != abi.MissedSkip {
		return false
	}
	return r.RecordedAt >= t.Due+period || r.RecordedAt-t.Due > int64(time.Minute)
}

// checkRenewal checks the next tick in a record against a tick that it
// computes by adding periods.
func (w *world) checkRenewal(r *journal.Record, t journal.Timer) {
	if t.Schedule == nil {
		return
	}
	w.ticks.fired++
	want, made := t.Due+period, uint16(0)
	switch abi.Missed(t.Schedule.Missed) {
	case abi.MissedAll:
		if want <= r.RecordedAt && t.Schedule.Made < 99 {
			made = t.Schedule.Made + 1
			w.ticks.made++
			break
		}
		fallthrough
	default:
		for want <= r.RecordedAt {
			want += period
			w.ticks.skipped++
		}
	}
	next, ok := w.timers[timerKey{r.Entity, t.Name}]
	if !ok || next.Due != want || next.Schedule == nil || next.Schedule.Made != made || next.Schedule.Missed != t.Schedule.Missed || string(next.Payload) != string(t.Payload) {
		w.problem("schedule %s of %s, due at %d, recorded at %d, is set to %+v; want due at %d with %d made up for", t.Name, r.Entity, t.Due, r.RecordedAt, next, want, made)
	}
}

// pass advances the clock and lets due timers fire.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.core.now = w.now
	for range 1000 {
		w.core.endTurn()
		w.found()
		w.core.runTurns()
		w.chunk()
		w.commit()
	}
}

// TestMissedTickPolicies checks that the ticks missed in an outage of many
// periods fire or are skipped as the schedule's policy says, and that the
// schedule continues with the next tick.
func TestMissedTickPolicies(t *testing.T) {
	const outage = 250
	for policy, want := range map[abi.Missed]int{abi.MissedOnce: 1, abi.MissedAll: abi.MaxMissed, abi.MissedSkip: 0} {
		t.Run(policy.String(), func(t *testing.T) {
			w := quiet(t)
			s := abi.Timer{Name: []byte("t"), Expression: []byte("@every 1m"), Missed: policy, Command: []byte("tick"), Payload: []byte("1")}
			w.schedules = append(w.schedules, s)
			w.ask(request.Command, "schedule", "a")
			sum := func() int64 { return w.head("x").sum }
			w.pass(61 * time.Second)
			if sum() != 1 {
				t.Fatalf("%d ticks in the first minute", sum())
			}
			w.now = w.now.Add(outage * time.Minute)
			w.handOver()
			w.pass(0)
			if got := sum() - 1; got != int64(want) {
				t.Errorf("%d ticks after an outage of %d, want %d", got, outage, want)
			}
			before := sum()
			w.pass(time.Minute)
			if sum() != before+1 {
				t.Errorf("%d ticks in the next minute", sum()-before)
			}
		})
	}
}

// TestScheduleContinuesAfterFailedTick checks that a schedule continues after a tick whose command
// is rejected or unknown, and ends when a tick cancels it.
func TestScheduleContinuesAfterFailedTick(t *testing.T) {
	w := quiet(t)
	for _, command := range []string{"deny", "refuse", "tick"} {
		w.schedules = append(w.schedules, abi.Timer{Name: []byte(command), Expression: []byte("@every 1m"), Command: []byte(command), Payload: []byte("1")})
	}
	w.ask(request.Command, "schedule", "a")
	for range 3 {
		w.pass(time.Minute)
	}
	if got := w.head("x").sum; got != 3 || len(w.timers) != 3 || w.core.stats.Rejections != 6 {
		t.Errorf("%d ticks, %d refused, %d schedules set", got, w.core.stats.Rejections, len(w.timers))
	}
	w.ask(request.SkipTimer, "tick", "by-ann")
	w.pass(time.Minute)
	if got := w.head("x").sum; got != 3 || len(w.timers) != 2 {
		t.Errorf("%d ticks, %d schedules set after one was cancelled", got, len(w.timers))
	}
}

// TestInvalidScheduleIsRejected checks that an invalid schedule sets nothing.
func TestInvalidScheduleIsRejected(t *testing.T) {
	for expression, zone := range map[string]string{"* * *": "", "@daily": "Mars/Olympus", "0 0 31 2 *": "", "@hourly": "Local", "@weekly": "localtime", "@monthly": "right/UTC"} {
		w := quiet(t)
		w.core.opts.ClusterVersion = maxLevel
		w.schedules = []abi.Timer{{Name: []byte("t"), Expression: []byte(expression), Zone: []byte(zone), Command: []byte("tick")}}
		if res := w.ask(request.Command, "schedule", "a"); !errors.Is(res.Err, request.ErrOutputValue) || !strings.Contains(res.Err.Error(), "schedule \"t\"") || len(w.timers) != 0 {
			t.Errorf("%q in %q: %+v, timers %v", expression, zone, res, w.timers)
		}
	}
}

// TestScheduleFollowsTheWallClock checks that a daily schedule ticks at the
// same hour after the zone's offset has changed.
func TestScheduleFollowsTheWallClock(t *testing.T) {
	w := quiet(t)
	berlin, err := cron.Zone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	w.now = time.Date(2026, 3, 27, 12, 0, 0, 0, berlin)
	w.schedules = []abi.Timer{{Name: []byte("t"), Expression: []byte("0 3 * * *"), Zone: []byte("Europe/Berlin"), Command: []byte("tick"), Payload: []byte("1")}}
	w.ask(request.Command, "schedule", "a")
	for day := 28; day <= 31; day++ {
		want := time.Date(2026, 3, day, 3, 0, 0, 0, berlin)
		for _, timer := range w.timers {
			if timer.Due != want.UnixNano() {
				t.Fatalf("due at %v, want %v", time.Unix(0, timer.Due).In(berlin), want)
			}
		}
		w.pass(want.Sub(w.now))
	}
	if got := w.head("x").sum; got != 4 {
		t.Errorf("%d ticks", got)
	}
}
