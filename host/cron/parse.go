package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var short = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var (
	monthNames = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	dayNames   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// field describes the numbers and names that are allowed in a field of an
// expression.
type field struct {
	noun      string
	low, high int
	names     []string // names of low, low+1, ...
}

// fields parses the five fields. Sunday is 0 or 7.
func (s *Schedule) fields(expression string) (err error) {
	if full := short[expression]; full != "" {
		expression = full
	}
	parts := strings.Fields(expression)
	if len(parts) != 5 {
		return fmt.Errorf("got %d fields, need minute, hour, day, month and weekday", len(parts))
	}
	for i, f := range []struct {
		field
		to *set
	}{
		{field{"minute", 0, 59, nil}, &s.minutes}, {field{"hour", 0, 23, nil}, &s.hours}, {field{"day", 1, 31, nil}, &s.days},
		{field{"month", 1, 12, monthNames}, &s.months}, {field{"weekday", 0, 7, dayNames}, &s.weekdays},
	} {
		if *f.to, err = f.parse(parts[i]); err != nil {
			return fmt.Errorf("%s: %w", f.noun, err)
		}
	}
	if s.weekdays.has(7) {
		s.weekdays |= 1
	}
	s.anyHour, s.anyDay, s.anyWeekday = parts[1][0] == '*', parts[2][0] == '*', parts[4][0] == '*'
	return nil
}

// parse parses a comma-separated list of "*", "a" or "a-b", each with an
// optional "/step".
func (f *field) parse(text string) (all set, err error) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, step := f.low, f.high, 1
		span, every, stepped := strings.Cut(part, "/")
		if stepped {
			if step, err = number(every); err != nil || step < 1 || step > f.high {
				return 0, fmt.Errorf("%q is not a step", every)
			}
		}
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			if low, err = f.value(first); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if high, err = f.value(last); err != nil {
					return 0, err
				}
			case !stepped:
				high = low
			}
			if high < low {
				return 0, fmt.Errorf("the range %q is decreasing", span)
			}
		}
		for n := low; n <= high; n += step {
			all |= 1 << uint(n)
		}
	}
	return all, nil
}

// value parses one number or name.
func (f *field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.low + i, nil
		}
	}
	n, err := number(text)
	if err != nil || n < f.low || n > f.high {
		return 0, fmt.Errorf("%q is not between %d and %d", text, f.low, f.high)
	}
	return n, nil
}

var errNumber = errors.New("not a number")

// number parses one to three digits and nothing else.
func number(text string) (int, error) {
	if len(text) == 0 || len(text) > 3 || strings.Trim(text, "0123456789") != "" {
		return 0, errNumber
	}
	return strconv.Atoi(text)
}
