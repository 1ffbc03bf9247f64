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
	// maxSkew is the tolerated difference between a node's wall clock and most
	// others.
	maxSkew = 500 * time.Millisecond
	// clockPeriod is how often clocks are compared. clockLooks is how often in
	// a row a clock must be off, or right again, before the result of the
	// comparison changes.
	clockPeriod = time.Second
	clockLooks  = 3
	// tripLooks is the number of comparisons between two checks of round-trip
	// times. tripsNeeded is the number of samples that a percentile needs.
	tripLooks   = 10
	tripsNeeded = 100
	// trips is how many round trips suspect-after and tick should last at
	// least.
	trips = 5
)

// timer measures the clocks of the other nodes.
type timer interface {
	// Timings returns the measured clocks, with percentiles of round trips if
	// asked for.
	Timings(percentiles bool) []peer.Timing
}

// ClockWatchOptions configures a ClockWatch. All fields are required.
type ClockWatchOptions struct {
	Peers              timer
	SuspectAfter, Tick time.Duration
	Changed            func() // called when the clock is found wrong, or right again
	Logger             *slog.Logger
}

// ClockWatch compares this node's wall clock with the other nodes' clocks. It
// is safe for concurrent use.
type ClockWatch struct {
	opts ClockWatchOptions
	skew atomic.Int64 // offset of this clock from the median of the others', in nanoseconds
	most atomic.Bool  // skew compares so many clocks that a single wrong clock cannot decide the result
	off  atomic.Bool  // this clock is wrong, so the node leads nothing
	away atomic.Int64 // skew of the last comparison that found the clock wrong
	trip atomic.Int64 // 99th percentile of the round trips to the slowest node, in nanoseconds
	odd  int          // comparisons in a row that contradict off
	slow bool         // the warning about long round trips was logged
}

// NewClockWatch returns a watch that knows nothing before Run.
func NewClockWatch(opts ClockWatchOptions) *ClockWatch { return &ClockWatch{opts: opts} }

// Median returns how far most nodes' clocks are ahead of this node's clock.
// known is false if too few clocks are known: if there are only two nodes,
// either clock may be wrong.
func (c *ClockWatch) Median() (ahead time.Duration, known bool) {
	return -time.Duration(c.skew.Load()), c.most.Load()
}

// Skew returns how far this clock is ahead of the median of the other nodes'
// clocks.
func (c *ClockWatch) Skew() time.Duration { return time.Duration(c.skew.Load()) }

// IsOff reports whether this clock is wrong.
func (c *ClockWatch) IsOff() bool { return c.off.Load() }

// Trip returns the 99th percentile of round trips to the node with the
// longest round trips.
func (c *ClockWatch) Trip() time.Duration { return time.Duration(c.trip.Load()) }

// Unready returns why a node with a wrong clock is not ready. After a clock was
// corrected, it stays wrong for a few comparisons, so the current skew may be
// 0.
func (c *ClockWatch) Unready() error {
	by, way := time.Duration(c.away.Load()), "ahead of"
	if by < 0 {
		by, way = -by, "behind"
	}
	text := fmt.Sprintf("the clock of this node is %v %s the clocks of most nodes", by.Round(time.Millisecond), way)
	if now := c.Skew(); now.Abs() <= maxSkew {
		text = fmt.Sprintf("the clock of this node was %v %s the clocks of most nodes, and must agree in %d comparisons before the node leads again", by.Round(time.Millisecond), way, clockLooks)
	}
	return errors.New(text)
}

// skewOf returns how far this clock is ahead of the median of the measured
// clocks. With more than one other clock, this one is included in the median
// and most is true. off means that this clock differs by more than maxSkew from
// the median and from a majority of all clocks including itself. If all
// clocks disagree, the clock in the middle is not off. With two nodes,
// neither clock is off.
func skewOf(timings []peer.Timing) (skew time.Duration, most, off bool) {
	var all []time.Duration
	away := 0
	for _, t := range timings {
		// A measurement with an error above maxSkew is useless.
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

// Run compares this node's clock with the other nodes' clocks until ctx
// ends. It also compares the timeouts with the round-trip times.
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
		timings := c.opts.Peers.Timings(percentile)
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
		c.opts.Logger.Error("the clock disagrees with the clocks of most nodes; this node leads no shards until it agrees", "ahead", skew.Round(time.Millisecond))
	} else {
		c.opts.Logger.Info("the clock agrees with the other nodes' clocks again")
	}
	c.opts.Changed()
}

// lookAtTrips warns if round trips are so long that alive nodes may become
// suspected or leaders may be replaced needlessly. It changes nothing itself.
func (c *ClockWatch) lookAtTrips(timings []peer.Timing) {
	longest := peer.Timing{}
	for _, t := range timings {
		if t.Trips >= tripsNeeded && t.Trip > longest.Trip {
			longest = t
		}
	}
	c.trip.Store(int64(longest.Trip))
	slow := min(c.opts.SuspectAfter, c.opts.Tick) < trips*longest.Trip
	if slow && !c.slow {
		c.opts.Logger.Warn("suspect-after and tick should be at least five round trips, or live nodes may be suspected",
			"node_id", longest.Node, "round_trip_p99", longest.Trip, "silent_after", c.opts.SuspectAfter, "tick", c.opts.Tick)
	}
	c.slow = slow
}
