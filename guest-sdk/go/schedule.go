package hostd

import (
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/abi"
)

// Missed determines what happens to the ticks of a schedule that could not fire
// when they were due.
type Missed = abi.Missed

// Values of Missed.
const (
	MissedOnce = abi.MissedOnce // one command, late, for all missed ticks
	MissedAll  = abi.MissedAll  // a command for each missed tick, up to 100 in a row
	MissedSkip = abi.MissedSkip // no command for missed ticks
)

// Schedule describes a command that the host sends to an entity periodically.
type Schedule struct {
	// Every is the time between two commands, at least 100 ms, counted from the
	// command that sets the schedule.
	Every Duration
	// Cron, used if Every is zero, has five fields of wall-clock time: minute,
	// hour, day of the month, month, day of the week, such as "0 3 * *
	// mon-fri"; or it is @hourly, @daily, @weekly, @monthly or @yearly.
	Cron string
	// Zone is the IANA time zone of Cron; empty means UTC.
	Zone   string
	Missed Missed

	Command string
	Payload any
}

// Schedule makes the host send this entity a command periodically, until
// CancelTimer. It replaces a timer or schedule of the same name and restarts
// the period, so do not call it repeatedly for the same schedule. If the
// expression or the zone is not valid, the command is rejected with
// invalid_argument: see ValidSchedule.
func (c *Context) Schedule(name string, s Schedule) {
	expression := s.Cron
	if s.Every != 0 {
		expression = "@every " + strconv.FormatInt(int64(s.Every), 10) + "ns"
	}
	c.guest.out = abi.AppendSetSchedule(c.guest.out, abi.Timer{
		Name: field(name), Expression: field(expression), Zone: field(s.Zone), Missed: s.Missed,
		Command: field(s.Command), Payload: c.payload(s.Payload),
	})
}

// ValidSchedule reports whether an expression is valid: it must have the form
// of Schedule.Cron, or be "@every" and a duration, such as "@every 1h30m". Use
// it to check a caller's expression before you set the schedule. ValidSchedule
// cannot check time zones, which only the host knows.
func ValidSchedule(expression string) bool {
	if len(expression) > 255 {
		return false
	}
	if text, ok := strings.CutPrefix(expression, "@every "); ok {
		period, err := time.ParseDuration(text)
		return err == nil && period >= 100*time.Millisecond && period <= 10*366*24*time.Hour
	}
	switch expression {
	case "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly":
		return true
	}
	parts := strings.Fields(expression)
	if len(parts) != 5 {
		return false
	}
	var sets [5]uint64
	for i, f := range cronFields {
		if sets[i] = f.parse(parts[i]); sets[i] == 0 {
			return false
		}
	}
	return parts[2][0] != '*' && parts[4][0] != '*' || occurs(sets[2], sets[3], sets[4])
}

// occurs reports whether one of the days occurs in one of the months on one of
// the weekdays. It checks ten years, because there can be eight years between
// two dates of 29 February.
func occurs(days, months, weekdays uint64) bool {
	weekdays |= weekdays >> 7 // Sunday is both 0 and 7
	weekday := 6              // weekday of 1 January 2000
	for year := range 10 {
		for month, last := range [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
			if month == 1 && year%4 == 0 {
				last++
			}
			for day := 1; day <= last; day++ {
				if months>>(month+1)&1 != 0 && days>>day&1 != 0 && weekdays>>weekday&1 != 0 {
					return true
				}
				weekday = (weekday + 1) % 7
			}
		}
	}
	return false
}

// cronField is the range and the names that a field of an expression allows.
type cronField struct {
	low, high int
	names     string // three letters each, starting at low
}

var cronFields = [5]cronField{
	{0, 59, ""}, {0, 23, ""}, {1, 31, ""}, {1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"}, {0, 7, "sunmontuewedthufrisat"},
}

// parse returns the numbers in a list of ranges as a bit set, or 0 if the list
// is invalid.
func (f cronField) parse(text string) (all uint64) {
	for part := range strings.SplitSeq(text, ",") {
		span, every, stepped := strings.Cut(part, "/")
		low, high, step := f.low, f.high, 1
		if stepped {
			if step = cronNumber(every); step < 1 || step > f.high {
				return 0
			}
		}
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			low = f.value(first)
			if ranged {
				high = f.value(last)
			} else if !stepped {
				high = low
			}
		}
		if low < f.low || high > f.high || high < low {
			return 0
		}
		for n := low; n <= high; n += step {
			all |= 1 << n
		}
	}
	return all
}

// value returns the number that a text or a name stands for, or -1 if it is
// neither.
func (f cronField) value(text string) int {
	if len(text) == 3 {
		if at := strings.Index(f.names, strings.ToLower(text)); at >= 0 && at%3 == 0 {
			return f.low + at/3
		}
	}
	return cronNumber(text)
}

// cronNumber parses a number of up to three digits. It returns -1 for any other
// text.
func cronNumber(text string) int {
	if len(text) == 0 || len(text) > 3 || strings.Trim(text, "0123456789") != "" {
		return -1
	}
	n, _ := strconv.Atoi(text)
	return n
}

// Due returns when the timer or schedule that sent this command was due; zero
// for any other command.
func (c *Context) Due() Instant { return Instant(c.request.Due) }
