package cluster

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/peer"
)

// A clock is off if most of the measured clocks, including this one, say so.
// Imprecise measurements are ignored.
func TestSkewNeedsMajorityOfClocks(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		others []time.Duration // how far they are ahead of this clock
		coarse int             // number of them that were measured imprecisely
		skew   time.Duration
		off    bool
	}{
		"alone":                        {nil, 0, 0, false},
		"two nodes":                    {[]time.Duration{-3600 * time.Second}, 0, 3600 * time.Second, false},
		"three, this one ahead":        {[]time.Duration{-900 * ms, -1000 * ms}, 0, 900 * ms, true},
		"three, this one behind":       {[]time.Duration{900 * ms, 1000 * ms}, 0, -900 * ms, true},
		"three, another one ahead":     {[]time.Duration{0, 3600 * time.Second}, 0, 0, false},
		"three within bounds":          {[]time.Duration{-500 * ms, 500 * ms}, 0, 0, false},
		"three that disagree, middle":  {[]time.Duration{-900 * ms, 900 * ms}, 0, 0, false},
		"three that disagree, ahead":   {[]time.Duration{-900 * ms, -1800 * ms}, 0, 900 * ms, true},
		"five, two ahead":              {[]time.Duration{0, 1 * ms, 2000 * ms, 2000 * ms}, 0, -1 * ms, false},
		"five, three ahead":            {[]time.Duration{0, 2000 * ms, 2000 * ms, 2000 * ms}, 0, -2000 * ms, true},
		"three, measured too coarsely": {[]time.Duration{-900 * ms, -1000 * ms}, 2, 0, false},
	} {
		var timings []peer.Timing
		for i, ahead := range c.others {
			m := peer.Timing{Trips: 1, Skew: ahead, Within: ms}
			if i < c.coarse {
				m.Within = 2 * maxSkew
			}
			timings = append(timings, m)
		}
		skew, most, off := skewOf(timings)
		if skew != c.skew || off != c.off {
			t.Errorf("%s: %v, %v; wanted %v, %v", name, skew, off, c.skew, c.off)
		}
		if want := len(c.others)-c.coarse > 1; most != want {
			t.Errorf("%s: most %v, wanted %v", name, most, want)
		}
	}
}

// A corrected clock is compared several times before it counts as right.
// Meanwhile the reason must not say that the clock is off by 0s.
func TestUnreadyReportsDecisiveSkew(t *testing.T) {
	c := NewClockWatch(ClockWatchOptions{Changed: func() {}, Logger: slog.New(slog.DiscardHandler)})
	others := func(ahead time.Duration) []peer.Timing {
		m := peer.Timing{Trips: 1, Skew: ahead, Within: time.Millisecond}
		return []peer.Timing{m, m}
	}
	for range clockLooks {
		c.look(others(-2 * time.Second))
	}
	if text := c.Unready().Error(); !c.IsOff() || !strings.Contains(text, "is 2s ahead of") {
		t.Errorf("off %v: %s", c.IsOff(), text)
	}
	c.look(others(0))
	if text := c.Unready().Error(); !c.IsOff() || !strings.Contains(text, "was 2s ahead of") {
		t.Errorf("corrected, off %v: %s", c.IsOff(), text)
	}
	for range clockLooks {
		c.look(others(3 * time.Second))
	}
	if text := c.Unready().Error(); !c.IsOff() || !strings.Contains(text, "is 3s behind") {
		t.Errorf("off %v: %s", c.IsOff(), text)
	}
}
