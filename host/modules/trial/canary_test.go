package trial

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDurationsFallIntoBuckets checks that each duration is in one bucket, that a
// bucket is at most about a quarter as wide as its lower bound, and that the
// last bucket takes all longer durations.
func TestDurationsFallIntoBuckets(t *testing.T) {
	for i := range Buckets - 1 {
		bound := bucketBound(i)
		if bucket(bound) != i+1 || bucket(bound-1) != i {
			t.Errorf("bucket %d ends at %d: %d is in %d, and the one before in %d", i, bound, bound, bucket(bound), bucket(bound-1))
		}
		if i > 0 && float64(bound) > 1.26*float64(bucketBound(i-1)) {
			t.Errorf("bucket %d is from %v to %v", i, bucketBound(i-1), bound)
		}
	}
	if bucket(-1) != 0 || bucket(0) != 0 || bucket(1<<62) != Buckets-1 {
		t.Error("a time has no bucket")
	}
}

// TestInvalidRulesAreRejected checks that the error for an invalid rule names
// the rule.
func TestInvalidRulesAreRejected(t *testing.T) {
	for _, text := range []string{
		"faults>0", "faults>0,rejections>+20%,p99>+50%", "rejections>5%", "rejections>+0%", "p99>20ms", "faults>0, rejections>12", "faults>+5%",
	} {
		if rules, err := ParseRules(text); err != nil || len(rules) != strings.Count(text, ",")+1 {
			t.Errorf("%s: %v, %v", text, rules, err)
		}
	}
	for _, text := range []string{
		",", "faults", "faults>", "faults>-1", "faults>x", "latency>5", "faults<0", "faults>0,", "p99>5", "p99>5%", "p99>0s", "p99>2m", "rejections>101%",
		"rejections>NaN%", "rejections>++5%", "rejections>+-5%", "rejections>%", "faults>0.5", "rejections>+1e9%", " >0",
		strings.TrimSuffix(strings.Repeat("faults>0,", 9), ","), "faults>" + strings.Repeat("0", 300),
	} {
		if rules, err := ParseRules(text); err == nil {
			t.Errorf("%s: %v", text, rules)
		}
	}
	if rules, err := ParseRules(""); rules != nil || err != nil {
		t.Error(rules, err)
	}
}

// did returns counts of commands, some of which were rejected, faulted, or
// slow.
func did(commands, rejections, faults uint64, took time.Duration, slow uint64) *Counts {
	c := &Counts{Commands: commands, Rejections: rejections, Faults: faults}
	c.Took[bucket(took)] += commands - slow
	c.Took[bucket(10*took)] += slow
	return c
}

// TestRulesBreakBeyondChance checks that a rule breaks only if a value exceeds
// it by more than chance explains, and only from the minimum number of commands
// on.
func TestRulesBreakBeyondChance(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		rule         string
		older, newer *Counts
		broken       bool
	}{
		{"faults>0", did(0, 0, 0, ms, 0), did(0, 0, 1, ms, 0), true}, // a fault of a load, before any command
		{"faults>0", did(900, 0, 50, ms, 0), did(900, 0, 0, ms, 0), false},
		{"faults>2", did(9, 0, 0, ms, 0), did(9, 0, 2, ms, 0), false},
		{"faults>2", did(9, 0, 0, ms, 0), did(9, 0, 3, ms, 0), true},
		{"rejections>10", did(9, 0, 0, ms, 0), did(20, 11, 0, ms, 0), true},
		{"rejections>5%", did(0, 0, 0, ms, 0), did(99, 99, 0, ms, 0), false}, // too few commands
		{"rejections>5%", did(0, 0, 0, ms, 0), did(100, 12, 0, ms, 0), true},
		{"rejections>5%", did(0, 0, 0, ms, 0), did(100, 11, 0, ms, 0), false}, // explained by chance
		{"rejections>+20%", did(10_000, 1000, 0, ms, 0), did(1000, 100, 0, ms, 0), false},
		{"rejections>+20%", did(10_000, 1000, 0, ms, 0), did(1000, 120, 0, ms, 0), false},
		{"rejections>+20%", did(10_000, 1000, 0, ms, 0), did(1000, 160, 0, ms, 0), true},
		{"rejections>+20%", did(99, 0, 0, ms, 0), did(1000, 1000, 0, ms, 0), false}, // too few commands of the older module
		{"rejections>+20%", did(1000, 0, 0, ms, 0), did(1000, 1, 0, ms, 0), false},  // explained by chance
		{"rejections>+20%", did(1000, 0, 0, ms, 0), did(1000, 9, 0, ms, 0), true},
		{"faults>+20%", did(1000, 0, 100, ms, 0), did(1000, 0, 200, ms, 0), true},
		{"p99>+50%", did(5000, 0, 0, ms, 0), did(5000, 0, 0, ms, 50), false}, // 1 of 100 commands is slow, as allowed
		{"p99>+50%", did(5000, 0, 0, ms, 0), did(5000, 0, 0, ms, 100), true},
		{"p99>+50%", did(5000, 0, 0, ms, 200), did(5000, 0, 0, ms, 200), false},
		{"p99>+50%", did(5000, 0, 0, ms, 0), did(999, 0, 0, 100*ms, 0), false}, // too few commands
		{"p99>+50%", did(999, 0, 0, ms, 0), did(5000, 0, 0, 100*ms, 0), false},
		{"p99>+50%", did(5000, 0, 0, ms, 0), did(5000, 0, 0, ms+ms/8, 0), false},
		{"p99>+2000%", did(5000, 0, 0, ms, 0), did(5000, 0, 0, 10*ms, 0), false},
		{"p99>20ms", did(0, 0, 0, ms, 0), did(5000, 0, 0, 10*ms, 0), false},
		{"p99>20ms", did(0, 0, 0, ms, 0), did(5000, 0, 0, 30*ms, 0), true},
	} {
		rules, err := ParseRules(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if why := rules[0].Broken(c.older, c.newer); (why != "") != c.broken || c.broken && !strings.HasPrefix(why, c.rule+": ") {
			t.Errorf("%s of %d, %d, %d after %d, %d, %d: %q", c.rule, c.newer.Commands, c.newer.Rejections, c.newer.Faults, c.older.Commands, c.older.Rejections, c.older.Faults, why)
		}
	}
}

// TestCountsBelongToTheirWindow checks that a window contains no counts from
// before it began or from a time when nobody watched, and that watching the
// same window again continues it.
func TestCountsBelongToTheirWindow(t *testing.T) {
	var c *Counter
	c.Command(1, true)
	c.Fault()
	c = &Counter{}
	c.Command(1, true)
	c.Fault()
	c.Watch(7)
	c.Command(time.Millisecond, true)
	c.Watch(7)
	c.Command(time.Millisecond, false)
	c.Fault()
	if w, got := c.Since(); w != 7 || got.Commands != 2 || got.Rejections != 1 || got.Faults != 1 || got.Took[bucket(time.Millisecond)] != 2 || got.P99() < time.Millisecond {
		t.Errorf("window %d: %+v", w, got)
	}
	c.Watch(8)
	c.Command(time.Second, false)
	if w, got := c.Since(); w != 8 || got.Commands != 1 || got.Faults != 0 || got.Took[bucket(time.Millisecond)] != 0 || got.P99() < time.Second || got.P99() > 5*time.Second/4 {
		t.Errorf("window %d: %+v", w, got)
	}
	c.Watch(0)
	c.Fault()
	if all := c.Total(); all.Commands != 3 || all.Faults != 1 || c.IsWatched() {
		t.Errorf("%+v", all)
	}
	var sum Counts
	for range 2 {
		all := c.Total()
		sum.Add(&all)
	}
	if sum.Commands != 6 || sum.Took[bucket(time.Second)] != 2 || sum.Nanos != 2*uint64(time.Second+2*time.Millisecond) {
		t.Errorf("%+v", sum)
	}
}

// TestCountersAreConcurrent checks that several executors can use counters
// concurrently.
func TestCountersAreConcurrent(t *testing.T) {
	c := &Counter{}
	c.Watch(1)
	var lanes sync.WaitGroup
	for range 4 {
		lanes.Go(func() {
			for range 1000 {
				c.Command(time.Microsecond, true)
				c.Fault()
			}
		})
	}
	for range 100 {
		c.Since()
	}
	lanes.Wait()
	if _, got := c.Since(); got.Commands != 4000 || got.Rejections != 4000 || got.Faults != 4000 {
		t.Errorf("%+v", got)
	}
}
