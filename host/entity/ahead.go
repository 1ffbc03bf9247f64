package entity

// A query must see a state that is as new as the moment it arrived, so it waits
// for a read round that is asked after that. One on an entity that is not in
// memory has its round asked while the entity is loaded: the round shows that
// this node led the shard after the query had come, and what the query sees
// afterwards can only be newer. It says the number that the next round has at
// least, for rounds are counted over all shards of a lane.

// askAhead asks for the read round of a request that waits for its entity.
func (c *core) askAhead(s *shard, r *Request) {
	if r.Kind != Query || r.round != 0 {
		return
	}
	r.round = c.rounds + 1
	s.asks = true
	c.touch(s)
}

// askedAhead reports whether a round of the request is confirmed or under way.
// One that failed meanwhile is asked for again.
func (s *shard) askedAhead(r *Request) bool {
	return r.round != 0 && (r.round <= s.confirmed || r.round > s.unread)
}
