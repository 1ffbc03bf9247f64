package raftgroup

import "slices"

// If a follower that has its snapshot makes no progress for stallTicks ticks,
// the entries after the snapshot are released.
const stallTicks = 50

// logPins keep the entries after the snapshots in transfer, so that their
// followers can continue from them. A pin starts with the transfer. The pin
// ends when the follower has nearly caught up or makes no more progress, and
// survives an interruption that may be resumed.
type logPins struct{ list []logPin }

// logPin keeps the log after a snapshot that is on its way to a follower.
type logPin struct {
	to        uint64
	index     uint64 // index of the snapshot
	until     uint64 // the tick at which the pin ends, 0 while the snapshot is being sent
	installed uint64 // the index of the snapshot that the follower has stored durably, or 0
	match     uint64 // the follower's match index when it last made progress
}

// HasPins reports whether there are pins.
func (p *logPins) HasPins() bool { return len(p.list) > 0 }

// MinIndex returns the lowest pinned index. There must be a pin.
func (p *logPins) MinIndex() uint64 {
	from := p.list[0].index
	for i := range p.list {
		from = min(from, p.list[i].index)
	}
	return from
}

// Set pins the log after a snapshot for a replica and replaces its previous
// pin. again reports that the previous transfer was of the same index and was
// interrupted.
func (p *logPins) Set(to, index uint64) (again bool) {
	p.list = slices.DeleteFunc(p.list, func(h logPin) bool {
		same := h.to == to
		again = again || same && h.until != 0 && h.index == index
		return same
	})
	p.list = append(p.list, logPin{to: to, index: index})
	return again
}

// Expire drops expired pins. The pin of a follower that has its snapshot
// expires when the follower makes no more progress, has nearly caught up, or
// has everything before the truncated index.
func (p *logPins) Expire(now, near uint64, progress func(id uint64) (match uint64, known bool)) {
	for i := range p.list {
		h := &p.list[i]
		match, known := progress(h.to)
		switch {
		case h.until == 0:
		case !known || match >= h.installed && match >= near:
			h.until = now
		case h.installed != 0 && match > h.match:
			h.match, h.until = match, now+stallTicks
		}
	}
	p.list = slices.DeleteFunc(p.list, func(h logPin) bool { return h.until != 0 && h.until <= now })
}

// Clear drops all pins.
func (p *logPins) Clear() { p.list = p.list[:0] }

// End sets the tick at which the pins of a replica end.
func (p *logPins) End(to, tick uint64) {
	for i := range p.list {
		if p.list[i].to == to {
			p.list[i].until = tick
		}
	}
}

// SetInstalled records that a replica durably has the snapshot of an index.
func (p *logPins) SetInstalled(to, index uint64) {
	for i := range p.list {
		if p.list[i].to == to {
			p.list[i].installed = index
		}
	}
}

// HasInstalled reports whether a replica is known to have a snapshot after the
// index.
func (p *logPins) HasInstalled(to, index uint64) bool {
	return slices.ContainsFunc(p.list, func(h logPin) bool { return h.to == to && index < h.installed })
}

// IsAwaited reports whether the snapshot of an index may still have to be sent.
func (p *logPins) IsAwaited(index, now uint64) bool {
	return slices.ContainsFunc(p.list, func(h logPin) bool {
		return h.installed == 0 && h.index == index && (h.until == 0 || h.until > now)
	})
}
