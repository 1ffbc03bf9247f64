// Package cron computes when a repeating timer is due. It parses cron
// expressions and periods, and finds the next tick after a given time in a time
// zone.
//
// The rules of the time zones come from a database embedded in the program.
//
// The package reads no clock, starts no goroutine and stores nothing. It does
// not decide what happens to missed ticks.
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// maxExpressionBytes bounds an expression, and maxZoneBytes the name of a
	// zone.
	maxExpressionBytes = 255
	maxZoneBytes       = 64
	// minPeriod and maxPeriod bound the period of "@every".
	minPeriod = 100 * time.Millisecond
	maxPeriod = 10 * 366 * 24 * time.Hour
	// maxYears is how many years Next searches. 29 February can be up to 8 years
	// away.
	maxYears = 9
)

var (
	// errExpression: the expression is invalid, or it never ticks.
	errExpression = errors.New("not a schedule")
	// errZone: the time zone is unknown.
	errZone = errors.New("unknown time zone")
)

// Schedule is the times of a repeating timer. It is immutable, except that
// AtLeast changes it.
type Schedule struct {
	period time.Duration // period of @every; 0 for a cron expression
	zone   *time.Location

	minutes, hours, days, months, weekdays set
	anyDay, anyWeekday                     bool // the field begins with a star
	anyHour                                bool
}

// set is the set of numbers that a field allows, as a bitmap.
type set uint64

func (s set) has(n int) bool { return s>>uint(n)&1 != 0 }

// Parse parses an expression. It is "@every" with a duration as for
// time.ParseDuration, one of @yearly, @annually, @monthly, @weekly, @daily,
// @midnight and @hourly, or five fields: minute, hour, day of the month, month,
// day of the week. zone is a name as for Zone. Errors wrap errExpression or
// errZone.
func Parse(expression, zone string) (*Schedule, error) {
	if len(expression) > maxExpressionBytes {
		return nil, fmt.Errorf("%w: the schedule has more than %d bytes", errExpression, maxExpressionBytes)
	}
	s := &Schedule{}
	var err error
	if s.zone, err = Zone(zone); err != nil {
		return nil, err
	}
	if text, ok := strings.CutPrefix(expression, "@every "); ok {
		s.period, err = time.ParseDuration(text)
		if err != nil || s.period < minPeriod || s.period > maxPeriod {
			return nil, fmt.Errorf("%w: the period of %q must be between %v and %v", errExpression, expression, minPeriod, maxPeriod)
		}
		return s, nil
	}
	if err := s.fields(expression); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", errExpression, expression, err)
	}
	if _, ok := s.match(civil{2000, 1, 1, 0, 0}); !ok {
		return nil, fmt.Errorf("%w: %q never fires", errExpression, expression)
	}
	return s, nil
}

// AtLeast raises the period of an "@every" schedule to least, if the period
// is shorter.
func (s *Schedule) AtLeast(least time.Duration) *Schedule {
	if s.period > 0 {
		s.period = max(s.period, least)
	}
	return s
}

// Next returns the first tick after a time. It returns false if there is none
// within maxYears. The period of an "@every" schedule counts from after.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	if s.period > 0 {
		return after.Add(s.period), true
	}
	return s.tick(after)
}

// Skip returns the first tick after a time, as if due and all missed ticks up
// to that time were skipped. The ticks of an "@every" schedule are at due plus
// multiples of the period. If due is after that time, Skip returns due.
func (s *Schedule) Skip(due, after time.Time) (time.Time, bool) {
	if s.period == 0 {
		return s.tick(after)
	}
	if due.After(after) {
		return due, true
	}
	return due.Add((after.Sub(due)/s.period + 1) * s.period), true
}
