package timers

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cron"
	"github.com/hostd/hostd/journal"
)

// A schedule is a timer that the record which ends it sets again. The executor that
// decides the command looks up when that is, by its clock and its own copy of
// the zone's rules, and the record carries the answer: nothing that replays it
// has to know either.

// missedAfter is how late a tick may be fired without being missed.
const missedAfter = int64(time.Minute)

var errNeverAgain = errors.New("it never comes")

// ErrSchedule: an expression or a time zone is none, or never comes.
var ErrSchedule = errors.New("invalid schedule")

// Schedule finds when the schedules that a guest has set are due first. An
// expression or zone that is none is the guest's fault. What a timer's own
// command sets is not due at once: it would be a loop that writes.
func (q *Timers) Schedule(out *abi.Output, now int64, fired bool) error {
	for i := range out.Timers {
		t := &out.Timers[i]
		if len(t.Expression) == 0 {
			if fired && !t.Cancel && t.Due <= now {
				t.Due = now + int64(q.opts.LeastTick)
			}
			continue
		}
		s, err := cron.Parse(string(t.Expression), string(t.Zone))
		if err != nil {
			return fmt.Errorf("%w %q: %w", ErrSchedule, t.Name, err)
		}
		next, ok := s.AtLeast(q.opts.LeastTick).Next(time.Unix(0, now))
		if !ok {
			return fmt.Errorf("%w %q: %w", ErrSchedule, t.Name, errNeverAgain)
		}
		t.Due = next.UnixNano()
	}
	return nil
}

// renewal is what becomes of a schedule whose tick is fired.
type renewal struct {
	op       journal.TimerOp
	schedule journal.Schedule
	skip     bool // this tick is not to be fired
	ends     bool // there is no other tick
}

// Renew looks what becomes of the schedule whose tick the timer is, and reports
// whether this tick is not to be fired.
func (f *Firing) Renew(now int64) (skip bool, err error) {
	if f.renewal, err = f.timers.renew(&f.Timer, now); err != nil {
		return false, err
	}
	return f.renewal.skip, nil
}

// renew says when a schedule is due next, and what becomes of the tick that it
// is due for now.
func (q *Timers) renew(t *journal.Timer, now int64) (*renewal, error) {
	s, err := cron.Parse(string(t.Schedule.Expression), string(t.Schedule.Zone))
	if err != nil {
		return nil, err
	}
	due := time.Unix(0, t.Due)
	following, more := s.AtLeast(q.opts.LeastTick).Next(due)
	overdue := more && following.UnixNano() <= now
	r := &renewal{
		op:       journal.TimerOp{Name: []byte(t.Name), Command: t.Command, Payload: t.Payload},
		schedule: journal.Schedule{Expression: t.Schedule.Expression, Zone: t.Schedule.Zone, Missed: t.Schedule.Missed},
	}
	switch abi.Missed(t.Schedule.Missed) {
	case abi.MissedSkip:
		r.skip = overdue || now-t.Due > missedAfter
	case abi.MissedAll:
		if overdue && t.Schedule.Made < abi.MaxMissed-1 {
			r.op.Due, r.schedule.Made = following.UnixNano(), t.Schedule.Made+1
			return r, nil
		}
	}
	if overdue {
		following, more = s.Skip(due, time.Unix(0, now))
	}
	r.op.Due, r.ends = following.UnixNano(), !more
	return r, nil
}

// timerOps are the parts of a record that set and cancel timers.
type timerOps struct {
	n              uint16
	ops, schedules []byte
}

func (o *timerOps) add(op *journal.TimerOp, s *journal.Schedule) {
	o.ops = journal.AppendTimerOp(o.ops, *op)
	if s != nil {
		o.schedules = journal.AppendScheduleOp(o.schedules, &journal.ScheduleOp{Op: o.n, Schedule: *s})
	}
	o.n++
}
