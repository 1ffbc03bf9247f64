package entity

import "slices"

// When another node takes over a shard, the shard's entities leave memory
// here. A guest needs some microseconds to drop an entity, so 100,000
// entities would block the executor for a third of a second, and with the
// executor all shards that this node still leads. Only entities with
// something in progress leave immediately; the others leave in slices between
// turns. Nothing can find the remaining entities until then, because a shard
// that is not led accepts no requests. The shard is not led again before all
// its entities have left, because an entity must be loaded again under each
// leadership.
//
//	stepDown --> leaving, a slice each turn --> nothing left --> activate, if elected
//
// Rejected: keep the entities in case this node is elected again. Another
// leader may have written in between, so each entity would have to be compared.

// leaving holds the entities of an ended leadership that are still in memory.
type leaving struct {
	entities []*entity // some of these may have left since
	busy     []*entity // entities whose instances had a guest call in progress
	at       int       // position in the table of hibernated entities
}

// split returns the entities of a shard that must leave now, because
// something is in progress for them or they wait, and the entities that may
// leave later. It forgets their proposals, because the log of the leadership
// ends.
func (c *core) split(s *shard) (now, later []*entity) {
	involved := make(map[*entity]bool)
	for v := range c.detachedCalls {
		involved[v.entity] = true
	}
	for e := range c.unloaded {
		if e.shard == s {
			involved[e] = true
		}
	}
	decided, later := s.log.DecidedTo(), s.entities.All()
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

// evictFromShard evicts an entity and removes it from its shard.
func (c *core) evictFromShard(e *entity) {
	c.residents.forget(e)
	c.residents.evict(e)
	delete(c.unloaded, e)
}

// leaveShards evicts the next slice of entities of shards that are no longer
// led. A shard that this node has been elected to lead again comes first.
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
			return // the return of a guest call starts another turn
		}
	}
}

// leaveShard examines up to most entities of a shard, and evicts those whose
// guests are not busy. waits reports that only entities of busy guests are
// left.
func (c *core) leaveShard(s *shard, most int) (looked int, waits bool) {
	l := &s.leaving
	if len(l.entities) == 0 && s.hibernated.Len() == 0 {
		l.entities, l.busy = l.busy, nil
	}
	for ; looked < most; looked++ {
		e := c.nextToLeave(s)
		switch {
		case e == nil && len(l.busy) > 0:
			return looked, true
		case e == nil:
			c.finishLeaving(s)
			return looked + 1, false
		case !s.entities.Has(e): // the entity has left memory since
		case e.inst != nil && e.inst.IsBusy():
			l.busy = append(l.busy, e)
		default:
			c.evictFromShard(e)
		}
	}
	return looked, false
}

// nextToLeave returns an entity of the shard that was not examined yet, or nil
// if there is none.
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
	if s.entities.Len() > len(l.busy) { // some hibernated entities were woken since
		l.entities, l.busy = s.entities.All(), nil
		return c.nextToLeave(s)
	}
	return nil
}

// finishLeaving notes that no entity of the shard is in memory.
func (c *core) finishLeaving(s *shard) {
	s.leaving = leaving{}
	c.leaving = slices.DeleteFunc(c.leaving, func(other *shard) bool { return other == s })
	c.residents.closeEmpty()
	c.activate(s)
}
