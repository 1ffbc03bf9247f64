package entity

import "slices"

// A shard that another node leads has its entities leave memory. A guest takes
// some microseconds to forget one, so 100,000 would keep the executor for a
// third of a second, and with it all shards that this node still leads. Only
// those that have something under way leave at once; the others leave in slices
// between turns. Nothing finds them meanwhile, because a shard that is not led
// takes no requests, and the shard is not led again before all have left: an
// entity is loaded anew under each leadership.
//
//	stepDown --> leaving, a slice each turn --> nothing left --> activate, if elected
//
// Rejected: to keep the entities for the case that this node is elected again.
// Another leader may have written since, so each would have to be compared.

// leaving is what a shard still has in memory of a leadership that ended.
type leaving struct {
	entities []*entity // some may have left since
	busy     []*entity // in guests that were under way
	at       int       // of the dormant ones, in their table
}

// split returns the entities of a shard that must leave at once, because
// something is under way for them or they wait for something, and those that may
// leave later. What they have in the log counts no more: the log ends.
func (c *core) split(s *shard) (now, later []*entity) {
	involved := make(map[*entity]bool)
	for v := range c.visits {
		involved[v.entity] = true
	}
	for e := range c.away {
		if e.shard == s {
			involved[e] = true
		}
	}
	decided, later := s.log.Decided(), s.entities.All()
	rest := later[:0]
	for _, e := range later {
		if e.phase != inMemory || e.waiting.Len() > 0 || e.last > decided || e.waits != (waits{}) || len(involved) > 0 && involved[e] {
			now = append(now, e)
		} else {
			rest = append(rest, e)
		}
		e.last = 0
	}
	return now, rest
}

// leavesShard has an entity leave memory and its shard.
func (c *core) leavesShard(e *entity) {
	c.residents.forget(e)
	c.residents.evict(e)
	delete(c.away, e)
}

// leaveShards has the next slice of entities leave that are of shards which are
// not led any more. A shard that waits to be led again is first.
func (c *core) leaveShards() {
	for c.mayLeave > 0 && len(c.leaving) > 0 {
		s := c.leaving[0]
		for _, other := range c.leaving {
			if other.elected > other.term {
				s = other
				break
			}
		}
		looked, waits := c.leaveShard(s, c.mayLeave)
		if c.mayLeave -= looked; waits {
			return // the return of a guest is a turn
		}
	}
}

// leaveShard looks at no more than so many entities of a shard, and has those
// leave whose guests are not under way. waits reports that there are no others.
func (c *core) leaveShard(s *shard, most int) (looked int, waits bool) {
	l := &s.leaving
	if len(l.entities) == 0 && s.dormant.Len() == 0 {
		l.entities, l.busy = l.busy, nil
	}
	for ; looked < most; looked++ {
		e := c.nextToLeave(s)
		switch {
		case e == nil && len(l.busy) > 0:
			return looked, true
		case e == nil:
			c.hasLeft(s)
			return looked + 1, false
		case !s.entities.Has(e): // it left by itself
		case e.inst != nil && e.inst.Busy():
			l.busy = append(l.busy, e)
		default:
			c.leavesShard(e)
		}
	}
	return looked, false
}

// nextToLeave is an entity of the shard that has not been looked at; nil if
// there is none.
func (c *core) nextToLeave(s *shard) *entity {
	l := &s.leaving
	if n := len(l.entities); n > 0 {
		e := l.entities[n-1]
		l.entities = l.entities[:n-1]
		return e
	}
	if e := c.residents.wakeNext(s, &l.at); e != nil {
		return e
	}
	if s.entities.Len() > len(l.busy) { // some woke meanwhile
		l.entities, l.busy = s.entities.All(), nil
		return c.nextToLeave(s)
	}
	return nil
}

// hasLeft notes that nothing of the shard is in memory.
func (c *core) hasLeft(s *shard) {
	s.leaving = leaving{}
	c.leaving = slices.DeleteFunc(c.leaving, func(other *shard) bool { return other == s })
	c.residents.closeEmpty()
	c.activate(s)
}
