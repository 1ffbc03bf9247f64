package timers

import (
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cron"
	"github.com/hostd/hostd/journal"
)

// A schedule is a timer that is set again by the record of each tick. The
// executor that decides a tick's command computes the next tick from its
// clock and its own copy of the time zone rules, and stores the result in the
// record. So a replica that replays the record needs neither the clock nor
// the rules.

// missedAfter is how late a tick may fire before it counts as missed.
const missedAfter = int64(time.Minute)

var errNeverAgain = errors.New("the schedule never fires")

// ErrSchedule means that an expression or a time zone is invalid, or that the
// schedule never ticks.
var ErrSchedule = errors.New("invalid schedule")

// Schedule sets the first due times of the schedules that a guest has set. It
// returns ErrSchedule, a fault of the guest, if an expression or zone is
// invalid. If fired is set, a timer caused the command. The timers that the
// command sets are then due MinScheduleInterval after now at the earliest,
// because otherwise a timer could set itself again in an endless loop.
func (q *Timers) Schedule(out *abi.Output, now int64, fired bool) error {
	for i := range out.Timers {
		t := &out.Timers[i]
		if len(t.Expression) == 0 {
			if fired && !t.Cancel && t.Due <= now {
				t.Due = now + int64(q.opts.MinScheduleInterval)
			}
			continue
		}
		s, err := cron.Parse(string(t.Expression), string(t.Zone))
		if err != nil {
			return fmt.Errorf("%w %q: %w", ErrSchedule, t.Name, err)
		}
		next, ok := s.AtLeast(q.opts.MinScheduleInterval).Next(time.Unix(0, now))
		if !ok {
			return fmt.Errorf("%w %q: %w", ErrSchedule, t.Name, errNeverAgain)
		}
		t.Due = next.UnixNano()
	}
	return nil
}

// renewal is the next state of a schedule whose tick fires.
type renewal struct {
	op       journal.TimerOp
	schedule journal.Schedule
	skip     bool // do not fire this tick
	ends     bool // there are no more ticks
}

// Renew prepares the next tick of the schedule that the timer belongs to. skip
// reports that the current tick must not fire.
func (f *Firing) Renew(now int64) (skip bool, err error) {
	if f.renewal, err = f.timers.renew(&f.Timer, now); err != nil {
		return false, err
	}
	return f.renewal.skip, nil
}

// renew computes the next tick of a schedule and whether the current tick
// fires, according to the schedule's policy for missed ticks.
func (q *Timers) renew(t *journal.Timer, now int64) (*renewal, error) {
	s, err := cron.Parse(string(t.Schedule.Expression), string(t.Schedule.Zone))
	if err != nil {
		return nil, err
	}
	due := time.Unix(0, t.Due)
	following, more := s.AtLeast(q.opts.MinScheduleInterval).Next(due)
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

// timerOps builds the sections of a record that set and cancel timers.
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
