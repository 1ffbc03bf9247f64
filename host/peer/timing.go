package peer

import (
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
)

const (
	// beatsKept is how many beats may be under way and be measured all the same.
	beatsKept = 16
	// tripsKept is how many round trips the percentile is of; at five beats a
	// second it is the last 100 s.
	tripsKept = 512
	// skewsKept is how many of the last trips the skew is taken from: from the
	// quickest, whose two halves differ least.
	skewsKept = 16
)

// Timing is what the beats of the link to a node tell of the way there and of
// its wall clock.
type Timing struct {
	Node sharding.NodeID
	// Trips were measured; 0: what follows is not known.
	Trips uint64
	// Trip is the 99th percentile of the last round trips, what both sides' beats
	// wait for left out.
	Trip time.Duration
	// Skew is how far the node's wall clock is ahead of this one's, give or take
	// half of Within.
	Skew, Within time.Duration
}

// trip is a round trip, and what it says of the other side's clock.
type trip struct{ took, skew time.Duration }

// timing measures one node. It is safe for concurrent use.
type timing struct {
	mu    sync.Mutex
	trips [tripsKept]trip
	count uint64
}

func (t *timing) add(v trip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trips[t.count%tripsKept] = v
	t.count++
}

// of describes what was measured. The percentile is left out where it is not
// wanted: it is sorted for.
func (t *timing) of(node sharding.NodeID, percentile bool) Timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := Timing{Node: node, Trips: t.count}
	if t.count == 0 {
		return out
	}
	best := t.trips[(t.count-1)%tripsKept]
	for back := uint64(2); back <= min(t.count, skewsKept); back++ {
		if v := t.trips[(t.count-back)%tripsKept]; v.took < best.took {
			best = v
		}
	}
	out.Skew, out.Within = best.skew, best.took
	if percentile {
		all := slices.Clone(t.trips[:min(t.count, tripsKept)])
		slices.SortFunc(all, func(a, b trip) int { return int(a.took - b.took) })
		out.Trip = all[(len(all)*99-1)/100].took
	}
	return out
}

// Timings describes the nodes that are heard, in no order.
func (p *Peers) Timings(percentile bool) []Timing {
	var out []Timing
	for id, q := range *p.table.Load() {
		if q.heard() {
			out = append(out, q.timing.of(id, percentile))
		}
	}
	return out
}

// departures are when the last beats of a link were sent.
type departures struct {
	mu   sync.Mutex
	beat [beatsKept]uint64
	at   [beatsKept]int64
}

func (d *departures) note(beat uint64, now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beat[beat%beatsKept], d.at[beat%beatsKept] = beat, now
}

// take returns when a beat was sent, once.
func (d *departures) take(beat uint64) (at int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := beat % beatsKept
	if beat == 0 || d.beat[i] != beat {
		return 0, false
	}
	d.beat[i] = 0
	return d.at[i], true
}

// measure takes the answer to a beat of the link. The other clock is read half
// a trip before the answer arrives.
func (l *outbound) measure(e echo) {
	at, ok := l.sent.take(e.beat)
	if !ok || e.clock == 0 {
		return
	}
	p := l.peer.owner
	took := max(time.Duration(p.now()-at)-time.Duration(e.held)*time.Microsecond, 0)
	l.peer.timing.add(trip{took, time.Unix(0, e.clock).Add(took / 2).Sub(p.opts.Wall())})
}

// arrivedBeat is a beat and when it arrived.
type arrivedBeat struct {
	beat uint64
	at   int64
}
