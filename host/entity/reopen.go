package entity

import "github.com/hostd/hostd/sharding"

// reopen begins the shard's leadership anew in the same term: what it holds was
// changed by others than this lane. Numbers of proposals go on.
func (c *core) reopen(id sharding.ShardID, clock int64) {
	s := c.shard(id)
	s.clock = max(s.clock, clock)
	if s.state != leading {
		return
	}
	next := s.next
	c.stepDown(s)
	s.term = s.elected - 1
	c.activate(s)
	if s.state == leading {
		s.next, s.decided = next, next-1
	}
}

// Reopen tells that the shard's state was changed by entries which are not the
// lane's; clock is the shard's log clock.
func (l *Lane) Reopen(shard sharding.ShardID, clock int64) {
	l.put(event{kind: evReopen, shard: shard, clock: clock})
}
