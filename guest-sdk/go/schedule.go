package hostd

import (
	"strconv"

	"github.com/hostd/hostd/abi"
)

// Missed says what becomes of the ticks of a schedule that could not be fired
// when they were due.
type Missed = abi.Missed

// What may become of missed ticks.
const (
	MissedOnce = abi.MissedOnce // one command, late, for all of them
	MissedAll  = abi.MissedAll  // a command for each, up to 100 in a row
	MissedSkip = abi.MissedSkip // none
)

// Schedule is a command that an entity gets again and again.
type Schedule struct {
	// Every is the time between two commands, from 100 ms on, counted from the
	// command that sets the schedule.
	Every Duration
	// Cron, where Every is zero, is five fields of the wall clock: minute, hour,
	// day of the month, month, day of the week, such as "0 3 * * mon-fri"; or
	// @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string
	// Zone is the IANA name of the wall clock's time zone; empty is UTC.
	Zone   string
	Missed Missed

	Command string
	Payload any
}

// Schedule makes the host send this entity a command again and again, until
// CancelTimer. It takes the place of a timer or schedule of the same name, and
// starts a period anew, so set it once. An expression that is none is a fault.
func (c *Context) Schedule(name string, s Schedule) {
	expression := s.Cron
	if s.Every != 0 {
		expression = "@every " + strconv.FormatInt(int64(s.Every), 10) + "ns"
	}
	c.guest.out = abi.AppendSetSchedule(c.guest.out, abi.Timer{
		Name: []byte(name), Expression: []byte(expression), Zone: []byte(s.Zone), Missed: s.Missed,
		Command: []byte(s.Command), Payload: c.payload(s.Payload),
	})
}

// Due returns when the timer or the tick was due that made this command; zero
// for a command that no timer made.
func (c *Context) Due() Instant { return Instant(c.request.Due) }
