package cron

import "time"

// A cron expression names times of a wall clock, which a zone moves forward
// over a gap, or back over an hour that then comes twice. What is done then
// depends on the hour field, as in Vixie's cron. Where it begins with a star
// the expression is taken for a rhythm: it ticks whenever the wall clock shows
// such a time, so not in a gap, and twice in an overlap. Else it is taken for
// an appointment: it ticks once in an overlap, the first time, and where one
// or more fall into a gap it ticks once, when the gap ends.

// civil is a minute of a wall clock, in no zone.
type civil struct{ year, month, day, hour, minute int }

func civilOf(t time.Time) civil {
	y, m, d := t.Date()
	return civil{y, int(m), d, t.Hour(), t.Minute()}
}

// time is the wall clock's time as if it were of UTC.
func (c civil) time() time.Time {
	return time.Date(c.year, time.Month(c.month), c.day, c.hour, c.minute, 0, 0, time.UTC)
}

// match is the first minute of the expression from c on; false when none comes
// for years.
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
		c = civilOf(c.time()) // what is over its end goes on in the next
	}
	return c, false
}

// onDay: with both days given, either will do.
func (s *Schedule) onDay(c civil) bool {
	day, weekday := s.days.has(c.day), s.weekdays.has(int(c.time().Weekday()))
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// stretch is a time in which a zone's offset from UTC is the same.
type stretch struct {
	start, end time.Time // end excluded; zero where there is none
	offset     time.Duration
}

func (s *Schedule) stretchAt(t time.Time) stretch {
	t = t.In(s.zone)
	start, end := t.ZoneBounds()
	_, offset := t.Zone()
	return stretch{start, end, time.Duration(offset) * time.Second}
}

// tick goes through the stretches after a time.
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

// before is the stretch before another one, if there is one.
func (s *Schedule) before(now stretch) (stretch, bool) {
	if now.start.IsZero() {
		return stretch{}, false
	}
	return s.stretchAt(now.start.Add(-time.Nanosecond)), true
}

// inGap reports that the expression names a minute that the wall clock passes
// over when the stretch begins.
func (s *Schedule) inGap(now stretch) bool {
	old, ok := s.before(now)
	if !ok || old.offset >= now.offset {
		return false
	}
	c, ok := s.match(civilOf(now.start.Add(old.offset).UTC()))
	return ok && c.time().Before(now.start.Add(now.offset))
}

// repeats reports that the wall clock has shown the minute before, in the
// stretch before this one.
func (s *Schedule) repeats(now stretch, c civil) bool {
	old, ok := s.before(now)
	return ok && old.offset > now.offset && c.time().Add(-old.offset).Before(now.start)
}
