package entity

import (
	"errors"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // the zones are known on machines that have no files of them

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cron"
	"github.com/hostd/hostd/journal"
)

// A schedule is a timer that the record which ends it sets again. The lane that
// decides the command looks up when that is, by its clock and its own copy of
// the zone's rules, and the record carries the answer: nothing that replays it
// has to know either.

// missedAfter is how late a tick may be fired without being missed.
const missedAfter = int64(time.Minute)

var errNeverAgain = errors.New("the schedule never comes again")

// zones finds time zones and keeps those that exist, of which there are some
// hundreds.
type zones map[string]*time.Location

func (z zones) find(name string) (*time.Location, error) {
	if loc := z[name]; loc != nil {
		return loc, nil
	}
	loc, err := time.LoadLocation(name)
	if err == nil {
		z[name] = loc
	}
	return loc, err
}

// schedule finds when the schedules that a guest has set are due first. An
// expression or zone that is none is the guest's fault.
func (c *core) schedule(out *abi.Output, now int64) error {
	for i := range out.Timers {
		t := &out.Timers[i]
		if len(t.Expression) == 0 {
			continue
		}
		s, err := cron.Parse(string(t.Expression), string(t.Zone), c.zones.find)
		if err != nil {
			return fmt.Errorf("schedule %q: %w", t.Name, err)
		}
		next, ok := s.Next(time.Unix(0, now))
		if !ok {
			return fmt.Errorf("schedule %q: %w", t.Name, errNeverAgain)
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

// renew says when a schedule is due next, and what becomes of the tick that it
// is due for now.
func (c *core) renew(t *journal.Timer, now int64) (*renewal, error) {
	s, err := cron.Parse(string(t.Schedule.Expression), string(t.Schedule.Zone), c.zones.find)
	if err != nil {
		return nil, err
	}
	due := time.Unix(0, t.Due)
	following, more := s.Next(due)
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

// fireSchedule decides the tick of a schedule, and reports whether its command
// is to be carried out.
func (c *core) fireSchedule(e *entity, r *Request, now int64) bool {
	var err error
	if r.fire.renewal, err = c.renew(&r.fire.timer, now); err != nil {
		c.opts.Logger.Error("a schedule cannot be gone on with", "entity_type", e.id.Type, "shard_id", e.shard.id, "error", err)
		c.settle(e.shard, r, Result{Err: err})
		return false
	}
	if r.fire.renewal.skip {
		c.fuel = 0
		c.endTimer(e, r, Env{Now: now}, false)
		return false
	}
	return true
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

// sortSections puts a record's sections in the order of their kinds.
func sortSections(rec *journal.Record) {
	if len(rec.Sections) > 1 {
		slices.SortFunc(rec.Sections, func(a, b journal.Section) int { return int(a.Kind) - int(b.Kind) })
	}
}
