// Package cron says when a repeating timer is due: it reads cron expressions
// and periods, and finds the next tick after a time in a time zone.
//
// The rules of the zones are those of the database that the program holds.
//
// It is pure: it reads no clock, starts no goroutine and stores nothing. It
// never decides what becomes of a tick that was missed.
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// MaxExpressionBytes bounds an expression, MaxZoneBytes a zone's name.
	MaxExpressionBytes = 255
	MaxZoneBytes       = 64
	// MinPeriod and MaxPeriod bound the period of "@every".
	MinPeriod = 100 * time.Millisecond
	MaxPeriod = 10 * 366 * 24 * time.Hour
	// maxYears is how far ahead a tick is looked for: 29 February is up to 8
	// years away.
	maxYears = 9
)

var (
	// ErrExpression: an expression that is none, or that never comes.
	ErrExpression = errors.New("not a schedule")
	// ErrZone: a time zone that is not known.
	ErrZone = errors.New("unknown time zone")
)

// Schedule is when something is due again and again. It is immutable.
type Schedule struct {
	period time.Duration // of @every; 0 for a cron expression
	zone   *time.Location

	minutes, hours, days, months, weekdays set
	anyDay, anyWeekday                     bool // the field begins with a star
	anyHour                                bool
}

// set is the numbers that a field allows.
type set uint64

func (s set) has(n int) bool { return s>>uint(n)&1 != 0 }

// Parse reads an expression: "@every" and a duration as time.ParseDuration
// reads it, one of @yearly, @annually, @monthly, @weekly, @daily, @midnight
// and @hourly, or five fields: minute, hour, day of the month, month, day of
// the week. zone is as Zone takes it. Errors are ErrExpression or ErrZone.
func Parse(expression, zone string) (*Schedule, error) {
	if len(expression) > MaxExpressionBytes {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrExpression, MaxExpressionBytes)
	}
	s := &Schedule{}
	var err error
	if s.zone, err = Zone(zone); err != nil {
		return nil, err
	}
	if text, ok := strings.CutPrefix(expression, "@every "); ok {
		s.period, err = time.ParseDuration(text)
		if err != nil || s.period < MinPeriod || s.period > MaxPeriod {
			return nil, fmt.Errorf("%w: %q has no period from %v to %v", ErrExpression, expression, MinPeriod, MaxPeriod)
		}
		return s, nil
	}
	if err := s.fields(expression); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrExpression, expression, err)
	}
	if _, ok := s.match(civil{2000, 1, 1, 0, 0}); !ok {
		return nil, fmt.Errorf("%w: %q never comes", ErrExpression, expression)
	}
	return s, nil
}

// AtLeast makes the period of an "@every" no shorter than least.
func (s *Schedule) AtLeast(least time.Duration) *Schedule {
	if s.period > 0 {
		s.period = max(s.period, least)
	}
	return s
}

// Next is the first tick after a time; false when none comes within the years
// that are looked at. A period counts from that time.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	if s.period > 0 {
		return after.Add(s.period), true
	}
	return s.tick(after)
}

// Skip is the first tick after a time on the grid that due stands on: the tick
// that follows when all up to that time are left out.
func (s *Schedule) Skip(due, after time.Time) (time.Time, bool) {
	if s.period == 0 {
		return s.tick(after)
	}
	if due.After(after) {
		return due, true
	}
	return due.Add((after.Sub(due)/s.period + 1) * s.period), true
}
