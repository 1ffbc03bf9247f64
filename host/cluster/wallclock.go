package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/peer"
)

const (
	// maxSkew is how far a node's wall clock may be off those of most others.
	maxSkew = 500 * time.Millisecond
	// clockPeriod is how often it is compared, and clockLooks how often in a row
	// it must be off, or right again.
	clockPeriod = time.Second
	clockLooks  = 3
	// tripLooks lie between two looks at round trips, of which tripsNeeded make a
	// percentile.
	tripLooks   = 10
	tripsNeeded = 100
	// trips is how many round trips suspect-after and tick shall be.
	trips = 5
)

// ClockWatchOptions of a Watch; all are required.
type ClockWatchOptions struct {
	// Timings are what peers say of their clocks, with percentiles of round trips
	// where that is asked for.
	Timings           func(percentiles bool) []peer.Timing
	SilentAfter, Tick time.Duration
	Changed           func() // told when the clock is wrong, or right again
	Logger            *slog.Logger
}

// ClockWatch is what a node knows of its wall clock among those of the others. It is
// safe for concurrent use.
type ClockWatch struct {
	opts ClockWatchOptions
	skew atomic.Int64 // of this clock to the median of the others', nanoseconds
	most atomic.Bool  // skew is to so many that one of them alone cannot be wrong
	off  atomic.Bool  // it is wrong: the node leads nothing
	away atomic.Int64 // the skew of the last comparison that found it wrong
	trip atomic.Int64 // the 99th percentile of round trips, to the farthest node
	odd  int          // looks in a row that say otherwise than off
	slow bool         // the round trips are too long, as was said
}

// NewClockWatch makes a watch; nothing is known before Run.
func NewClockWatch(opts ClockWatchOptions) *ClockWatch { return &ClockWatch{opts: opts} }

// Median returns how far most nodes' clocks are ahead of this one, where enough
// of them are known to tell: of two nodes either may be the one that is wrong.
func (c *ClockWatch) Median() (ahead time.Duration, known bool) {
	return -time.Duration(c.skew.Load()), c.most.Load()
}

// Skew is how far this clock is ahead of the median of the others'.
func (c *ClockWatch) Skew() time.Duration { return time.Duration(c.skew.Load()) }

// Off reports that this clock is wrong.
func (c *ClockWatch) Off() bool { return c.off.Load() }

// Trip is the 99th percentile of round trips, to the node where it is longest.
func (c *ClockWatch) Trip() time.Duration { return time.Duration(c.trip.Load()) }

// Unready says why a node with a wrong clock is not ready. A clock that has been
// corrected stays wrong for some comparisons, so the skew of now may be 0.
func (c *ClockWatch) Unready() error {
	by, way := time.Duration(c.away.Load()), "ahead of"
	if by < 0 {
		by, way = -by, "behind"
	}
	text := fmt.Sprintf("the clock of this node is %v %s those of most nodes", by.Round(time.Millisecond), way)
	if now := c.Skew(); now.Abs() <= maxSkew {
		text = fmt.Sprintf("the clock of this node was %v %s those of most nodes, and is compared %d times before the node leads again", by.Round(time.Millisecond), way, clockLooks)
	}
	return errors.New(text)
}

// skewOf returns how far this clock is ahead of the median of those that are
// heard, itself counted where there are more than two; whether there are; and
// whether it is off: more than maxSkew from so many that they are most of all
// nodes that are heard, this one counted, and from their median. If all clocks
// disagree, the one in the middle is not off. Of two nodes neither is.
func skewOf(timings []peer.Timing) (skew time.Duration, most, off bool) {
	var all []time.Duration
	away := 0
	for _, t := range timings {
		// What was measured too coarsely says nothing.
		if t.Trips == 0 || t.Within > maxSkew {
			continue
		}
		all = append(all, -t.Skew)
		if t.Skew.Abs() > maxSkew {
			away++
		}
	}
	if len(all) == 0 {
		return 0, false, false
	}
	if most = len(all) > 1; most {
		all = append(all, 0)
	}
	slices.Sort(all)
	skew = all[(len(all)-1)/2]
	return skew, most, away > 1 && 2*away > len(all) && skew.Abs() > maxSkew
}

// Run compares this node's clock with the others' until ctx ends, and
// what it waits for with how long their answers take.
func (c *ClockWatch) Run(ctx context.Context) {
	every := time.NewTicker(clockPeriod)
	defer every.Stop()
	for look := 1; ; look++ {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		percentile := look%tripLooks == 0
		timings := c.opts.Timings(percentile)
		c.look(timings)
		if percentile {
			c.lookAtTrips(timings)
		}
	}
}

func (c *ClockWatch) look(timings []peer.Timing) {
	skew, most, off := skewOf(timings)
	c.skew.Store(int64(skew))
	c.most.Store(most)
	if off {
		c.away.Store(int64(skew))
	}
	if off == c.off.Load() {
		c.odd = 0
		return
	}
	if c.odd++; c.odd < clockLooks {
		return
	}
	c.odd = 0
	c.off.Store(off)
	if off {
		c.opts.Logger.Error("the clock is off those of most nodes: this node leads nothing until that has changed", "ahead", skew.Round(time.Millisecond))
	} else {
		c.opts.Logger.Info("the clock agrees with those of the other nodes again")
	}
	c.opts.Changed()
}

// lookAtTrips warns where answers take so long that living nodes may be taken
// for silent, or leaders be replaced. It changes nothing by itself.
func (c *ClockWatch) lookAtTrips(timings []peer.Timing) {
	longest := peer.Timing{}
	for _, t := range timings {
		if t.Trips >= tripsNeeded && t.Trip > longest.Trip {
			longest = t
		}
	}
	c.trip.Store(int64(longest.Trip))
	slow := min(c.opts.SilentAfter, c.opts.Tick) < trips*longest.Trip
	if slow && !c.slow {
		c.opts.Logger.Warn("suspect-after and tick should be at least five round trips: nodes that live may be taken for silent",
			"node_id", longest.Node, "round_trip_p99", longest.Trip, "silent_after", c.opts.SilentAfter, "tick", c.opts.Tick)
	}
	c.slow = slow
}
