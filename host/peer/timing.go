package peer

import (
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
)

const (
	// beatsKept is how many heartbeats may be in flight and still be measured.
	beatsKept = 16
	// tripsKept is the number of round trips from which the percentile is
	// computed. With five heartbeats a second they cover the last 100 s.
	tripsKept = 512
	// skewsKept is the number of recent round trips from which the skew is
	// taken. The fastest of them gives the skew, because its two directions
	// differ least.
	skewsKept = 16
)

// Timing describes the network path to a node and that node's wall clock, as
// measured by the heartbeats of a link.
type Timing struct {
	Node sharding.NodeID
	// Trips is the number of measurements. If 0, the other fields are unknown.
	Trips uint64
	// Trip is the 99th percentile of the last round trips, without the time
	// that both sides held the heartbeats.
	Trip time.Duration
	// Skew is how far the node's wall clock is ahead of this node's wall
	// clock, with an error of at most half of Within.
	Skew, Within time.Duration
}

// trip is a round trip and the clock difference that it measured.
type trip struct{ took, skew time.Duration }

// timing holds the measurements of one node. It is safe for concurrent use.
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

// of returns the measurements. It computes the percentile only if percentile is
// set, because that requires a sort.
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

// Timings describes the nodes that are alive, unordered.
func (p *Peers) Timings(percentile bool) []Timing {
	var out []Timing
	for id, q := range *p.table.Load() {
		if q.isAlive() {
			out = append(out, q.timing.of(id, percentile))
		}
	}
	return out
}

// departures are the send times of the last heartbeats of a link.
type departures struct {
	mu        sync.Mutex
	heartbeat [beatsKept]uint64
	at        [beatsKept]int64
}

func (d *departures) note(beat uint64, now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heartbeat[beat%beatsKept], d.at[beat%beatsKept] = beat, now
}

// take returns when a heartbeat was sent. It succeeds once per heartbeat.
func (d *departures) take(beat uint64) (at int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := beat % beatsKept
	if beat == 0 || d.heartbeat[i] != beat {
		return 0, false
	}
	d.heartbeat[i] = 0
	return d.at[i], true
}

// measure evaluates the answer to a heartbeat. The other node's clock was read
// about half a round trip before the answer arrived.
func (l *outbound) measure(e echo) {
	at, ok := l.sent.take(e.heartbeat)
	if !ok || e.clock == 0 {
		return
	}
	p := l.peer.owner
	took := max(time.Duration(p.now()-at)-time.Duration(e.held)*time.Microsecond, 0)
	l.peer.timing.add(trip{took, time.Unix(0, e.clock).Add(took / 2).Sub(p.opts.Wall())})
}

// arrivedHeartbeat is a heartbeat and when it arrived.
type arrivedHeartbeat struct {
	heartbeat uint64
	at        int64
}
