package cron

import "time"

// Daylight saving time.
//
// A cron expression names times of a wall clock. A time zone may move the clock
// forward, which leaves a gap, or back, so that an hour occurs twice (an
// overlap). What happens then depends on the hour field, as in Vixie cron. If
// the field begins with a star, the expression counts as a rhythm: it ticks
// whenever the wall clock shows a matching time, which means not in a gap and
// twice in an overlap. Otherwise it counts as an appointment: it ticks once in
// an overlap, at the first time, and if one or more ticks fall into a gap, it
// ticks once when the gap ends.

// civil is a minute of a wall clock, without a time zone.
type civil struct{ year, month, day, hour, minute int }

func civilOf(t time.Time) civil {
	y, m, d := t.Date()
	return civil{y, int(m), d, t.Hour(), t.Minute()}
}

// time returns the wall clock time as if it were in UTC.
func (c civil) time() time.Time {
	return time.Date(c.year, time.Month(c.month), c.day, c.hour, c.minute, 0, 0, time.UTC)
}

// match returns the first minute at or after c that matches the expression, or
// false if there is none within maxYears.
func (s *Schedule) match(c civil) (civil, bool) {
	for end := c.year + maxYears; c.year <= end; {
		switch {
		case !s.months.has(c.month):
			c = civil{c.year, c.month + 1, 1, 0, 0}
		case !s.onDay(c):
			c = civil{c.year, c.month, c.day + 1, 0, 0}
		case !s.hours.has(c.hour):
			c = civil{c.year, c.month, c.day, c.hour + 1, 0}
		case !s.minutes.has(c.minute):
			c.minute++
		default:
			return c, true
		}
		c = civilOf(c.time()) // normalize overflowing fields
	}
	return c, false
}

// onDay reports whether the day matches. If both the day of the month and the
// day of the week are restricted, either may match.
func (s *Schedule) onDay(c civil) bool {
	day, weekday := s.days.has(c.day), s.weekdays.has(int(c.time().Weekday()))
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// stretch is a period during which a zone's offset from UTC is constant.
type stretch struct {
	start, end time.Time // end is exclusive; zero if unbounded
	offset     time.Duration
}

func (s *Schedule) stretchAt(t time.Time) stretch {
	t = t.In(s.zone)
	start, end := t.ZoneBounds()
	_, offset := t.Zone()
	return stretch{start, end, time.Duration(offset) * time.Second}
}

// tick returns the first tick after a time. It searches one stretch after the
// other, for at most maxYears.
func (s *Schedule) tick(after time.Time) (time.Time, bool) {
	from := after.Truncate(time.Minute).Add(time.Minute)
	for limit := from.AddDate(maxYears, 0, 0); from.Before(limit); {
		now := s.stretchAt(from)
		if !s.anyHour && from.Equal(now.start) && s.inGap(now) {
			return from.UTC(), true
		}
		c := civilOf(from.Add(now.offset).UTC())
		for {
			var ok bool
			if c, ok = s.match(c); !ok {
				break
			}
			at := c.time().Add(-now.offset)
			if !now.end.IsZero() && !at.Before(now.end) {
				break
			}
			if !at.Before(from) && (s.anyHour || !s.repeats(now, c)) {
				return at, true
			}
			c = civilOf(c.time().Add(time.Minute))
		}
		if now.end.IsZero() {
			break
		}
		from = now.end
	}
	return time.Time{}, false
}

// before returns the stretch before now, if there is one.
func (s *Schedule) before(now stretch) (stretch, bool) {
	if now.start.IsZero() {
		return stretch{}, false
	}
	return s.stretchAt(now.start.Add(-time.Nanosecond)), true
}

// inGap reports whether the expression names a minute that the wall clock skips
// when the stretch begins.
func (s *Schedule) inGap(now stretch) bool {
	old, ok := s.before(now)
	if !ok || old.offset >= now.offset {
		return false
	}
	c, ok := s.match(civilOf(now.start.Add(old.offset).UTC()))
	return ok && c.time().Before(now.start.Add(now.offset))
}

// repeats reports whether the wall clock has already shown the minute c in the
// previous stretch.
func (s *Schedule) repeats(now stretch, c civil) bool {
	old, ok := s.before(now)
	return ok && old.offset > now.offset && c.time().Add(-old.offset).Before(now.start)
}
