package cron

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func must(t *testing.T, expression, zone string) *Schedule {
	t.Helper()
	s, err := Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// modelNext finds the next tick by checking every minute of the wall clock.
func modelNext(s *Schedule, after, end time.Time) (time.Time, bool) {
	named := func(c civil) bool {
		day, weekday := s.days.has(c.day), s.weekdays.has(int(c.time().Weekday()))
		either := day || weekday
		if s.anyDay || s.anyWeekday {
			either = day && weekday
		}
		return either && s.minutes.has(c.minute) && s.hours.has(c.hour) && s.months.has(c.month)
	}
	wall := func(at time.Time) civil { return civilOf(at.In(s.zone)) }
	for at := after.Truncate(time.Minute).Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
		c, last := wall(at), wall(at.Add(-time.Minute))
		if s.anyHour {
			if named(c) {
				return at, true
			}
			continue
		}
		shown := false // the wall clock showed c within the last three hours
		for back := time.Minute; back <= 3*time.Hour && named(c); back += time.Minute {
			shown = shown || wall(at.Add(-back)) == c
		}
		if named(c) && !shown {
			return at, true
		}
		for m := last.time().Add(time.Minute); m.Before(c.time()); m = m.Add(time.Minute) {
			if named(civilOf(m)) {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

// TestNextMatchesModel compares Next with the model for random expressions,
// around changes of the offset of time zones and around ends of months.
func TestNextMatchesModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	around := map[string][]string{
		"Europe/Berlin":       {"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"},
		"America/New_York":    {"2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"},
		"Australia/Lord_Howe": {"2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z"},
		"Africa/Cairo":        {"2026-04-23T22:00:00Z", "2026-10-29T21:00:00Z"},
		"Asia/Kolkata":        {"2026-02-28T18:00:00Z"},
		"":                    {"2024-02-29T00:00:00Z", "2025-12-31T23:00:00Z"},
	}
	pick := func(options ...string) string { return options[rnd.IntN(len(options))] }
	count, changed := 0, 0
	for zone, times := range around {
		for _, text := range times {
			middle, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			for range 60 {
				expression := strings.Join([]string{
					pick("*", "*/7", "0", "30", "15,45", "59", "10-20/5", fmt.Sprint(rnd.IntN(60))),
					pick("*", "*/2", "2", "1-3", "0", "3", "23", fmt.Sprint(rnd.IntN(24))),
					pick("*", "*", "29", "1", "31", fmt.Sprint(1+rnd.IntN(31))),
					pick("*", "*", "mar,oct", "2", "4-11"),
					pick("*", "*", "sun", "0", "7", "mon-fri", "5-7"),
				}, " ")
				s, err := Parse(expression, zone)
				if errors.Is(err, errExpression) && strings.Contains(err.Error(), "never") {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				at, end := middle.Add(-36*time.Hour), middle.Add(48*time.Hour)
				for range 40 {
					want, ok := modelNext(s, at, end)
					got, found := s.Next(at)
					if !ok {
						if found && got.Before(end) {
							t.Fatalf("%q in %q after %v: %v, want none before %v", expression, zone, at, got, end)
						}
						break
					}
					if !found || !got.Equal(want) {
						t.Fatalf("%q in %q after %v: %v, want %v", expression, zone, at, got, want)
					}
					if !s.stretchAt(at).start.Equal(s.stretchAt(got).start) {
						changed++
					}
					at = got
					count++
				}
			}
		}
	}
	if count < 1000 || changed < 50 {
		t.Errorf("%d ticks, %d of them over a change: the test shows too little", count, changed)
	}
}

// TestDaylightSaving shows the effect of gaps and overlaps by examples.
func TestDaylightSaving(t *testing.T) {
	for _, c := range []struct{ expression, after, want string }{
		{"30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},                      // in the gap: ticks when the gap ends
		{"30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},                      // shown twice: ticks once
		{"30 * * * *", "2026-03-29T00:00:00Z", "2026-03-29T00:30:00Z 2026-03-29T01:30:00Z"},                      // a rhythm continues
		{"30 * * * *", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z 2026-10-25T01:30:00Z 2026-10-25T02:30:00Z"}, // a rhythm continues
	} {
		s := must(t, c.expression, "Europe/Berlin")
		at, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.Fields(c.want) {
			at, _ = s.Next(at)
			got = append(got, at.Format(time.RFC3339))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s after %s: %s, want %s", c.expression, c.after, got, c.want)
		}
	}
}

func TestPeriods(t *testing.T) {
	s := must(t, "@every 90s", "")
	start := time.Unix(1000, 5)
	if next, ok := s.Next(start); !ok || !next.Equal(start.Add(90*time.Second)) {
		t.Errorf("next is %v", next)
	}
	for late, want := range map[time.Duration]time.Duration{-1: 0, 0: 90, 89: 90, 90: 180, 1000: 1080} {
		if next, ok := s.Skip(start, start.Add(late*time.Second)); !ok || !next.Equal(start.Add(want*time.Second)) {
			t.Errorf("%d s late the next is %v", late, next.Sub(start))
		}
	}
}

func TestFaults(t *testing.T) {
	for expression, zone := range map[string]string{
		"": "", "* * * *": "", "* * * * * *": "", "60 * * * *": "", "* 24 * * *": "", "* * 0 * *": "", "* * * 13 * ": "", "* * * * 8": "",
		"5-1 * * * *": "", "*/0 * * * *": "", "*/-1 * * * *": "", "+1 * * * *": "", "1, * * * *": "", "* * 31 feb *": "", "@every": "",
		"@every 1ms": "", "@every 20y": "", "@reboot": "", "@every -5s": "", strings.Repeat("0,", 200) + "0 * * * *": "",
	} {
		if _, err := Parse(expression, zone); !errors.Is(err, errExpression) {
			t.Errorf("%q: %v", expression, err)
		}
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "../etc/passwd", "/etc/localtime", strings.Repeat("a", 65)} {
		if _, err := Parse("@daily", zone); !errors.Is(err, errZone) {
			t.Errorf("%q: %v", zone, err)
		}
	}
}

// FuzzParse checks that an accepted expression ticks in the future and that
// Next and Skip agree.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"*/5 * * * *", "0 3 * * mon-fri", "@every 1h", "@yearly", "0 0 29 2 *", "1-5/2,7 1,2 * jan sun"} {
		f.Add(seed, "Europe/Berlin", int64(1_774_700_000))
	}
	f.Fuzz(func(t *testing.T, expression, zone string, seconds int64) {
		s, err := Parse(expression, zone)
		if err != nil {
			if !errors.Is(err, errExpression) && !errors.Is(err, errZone) {
				t.Fatal(err)
			}
			return
		}
		at := time.Unix(seconds%(1<<33), 0)
		next, ok := s.Next(at)
		if ok && !next.After(at) {
			t.Fatalf("%q ticks at %v after %v", expression, next, at)
		}
		if again, found := s.Skip(at, at); ok != found || s.period == 0 && !again.Equal(next) {
			t.Fatalf("%q: %v by Next, %v by Skip", expression, next, again)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, expression := range []string{"@every 1m", "*/5 * * * *", "0 3 * * mon-fri", "0 0 29 2 *"} {
		b.Run(expression, func(b *testing.B) {
			s, err := Parse(expression, "Europe/Berlin")
			if err != nil {
				b.Fatal(err)
			}
			at := time.Unix(1_774_700_000, 0)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(at)
			}
		})
	}
}
