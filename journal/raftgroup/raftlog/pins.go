package raftlog

import (
	"slices"

	"go.etcd.io/raft/v3/tracker"
)

// StandTicks is how long a follower that has its snapshot may stand still
// without losing the entries behind it.
const StandTicks = 50

// Pins keep the entries behind snapshots under way, so that their followers can
// go on from them. A pin begins with the sending and ends when the follower is
// near, or gets on no more. While a snapshot that broke off waits to be sent on
// it goes on.
type Pins struct{ list []pin }

// pin keeps the log behind a snapshot that is on its way to a follower.
type pin struct {
	to    uint64
	index uint64 // of the snapshot
	until uint64 // the tick at which it ends, 0 while the snapshot is sent
	there uint64 // the index of the snapshot that the follower has durably, 0 before
	match uint64 // how far the follower was when it got on last
}

// Any says whether there are pins.
func (p *Pins) Any() bool { return len(p.list) > 0 }

// From is the lowest index behind which entries are kept; there is a pin.
func (p *Pins) From() uint64 {
	from := p.list[0].index
	for i := range p.list {
		from = min(from, p.list[i].index)
	}
	return from
}

// Set pins the log behind a snapshot for a replica, in the place of its last
// pin; again says that this was of the same index, and the sending broke off.
func (p *Pins) Set(to, index uint64) (again bool) {
	p.list = slices.DeleteFunc(p.list, func(h pin) bool {
		same := h.to == to
		again = again || same && h.until != 0 && h.index == index
		return same
	})
	p.list = append(p.list, pin{to: to, index: index})
	return again
}

// Tend ends the pins that are over. A follower that has its snapshot needs the
// entries behind it as long as it gets on with them, until it is near, or has
// all that lies before the cut.
func (p *Pins) Tend(now, near uint64, progress map[uint64]tracker.Progress) {
	for i := range p.list {
		h := &p.list[i]
		at, known := progress[h.to]
		switch {
		case h.until == 0:
		case !known || at.Match >= h.there && at.Match >= near:
			h.until = now
		case h.there != 0 && at.Match > h.match:
			h.match, h.until = at.Match, now+StandTicks
		}
	}
	p.list = slices.DeleteFunc(p.list, func(h pin) bool { return h.until != 0 && h.until <= now })
}

// Drop ends all pins.
func (p *Pins) Drop() { p.list = p.list[:0] }

// End ends the pins of a replica at a tick.
func (p *Pins) End(to, tick uint64) {
	for i := range p.list {
		if p.list[i].to == to {
			p.list[i].until = tick
		}
	}
}

// Arrived notes that a replica has a snapshot of that index durably.
func (p *Pins) Arrived(to, index uint64) {
	for i := range p.list {
		if p.list[i].to == to {
			p.list[i].there = index
		}
	}
}

// Has says whether a replica has a snapshot behind the index, by what is known.
func (p *Pins) Has(to, index uint64) bool {
	return slices.ContainsFunc(p.list, func(h pin) bool { return h.to == to && index < h.there })
}

// Awaited says whether somebody may still be sent the snapshot of an index.
func (p *Pins) Awaited(index, now uint64) bool {
	return slices.ContainsFunc(p.list, func(h pin) bool {
		return h.there == 0 && h.index == index && (h.until == 0 || h.until > now)
	})
}
