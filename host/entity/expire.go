package entity

// expire answers requests whose deadline has passed and takes up what was held
// back. What is proposed keeps its course; only the wait for it ends.
func (c *core) expire() {
	for _, s := range c.shards {
		if s.undecided == 0 {
			continue
		}
		for _, p := range s.proposed {
			for i, x := range p.pending {
				if x.req != nil && c.late(x.req) {
					p.pending[i].req = nil
					c.settle(s, x.req, Result{Err: ErrDeadline})
				}
			}
		}
		if len(s.held) > 0 {
			c.touch(s)
		}
		s.gated = c.expireFrom(s, s.gated)
		s.deferred = c.expireFrom(s, s.deferred)
		c.resume(s)
	}
	for e := range c.away {
		if c.expireWaiting(e); e.waiting.len == 0 {
			delete(c.away, e)
			c.revive(e)
		}
	}
}

func (c *core) expireFrom(s *shard, reqs []*Request) []*Request {
	keep := reqs[:0]
	for _, r := range reqs {
		if c.late(r) {
			c.settle(s, r, Result{Err: ErrDeadline})
		} else {
			keep = append(keep, r)
		}
	}
	clear(reqs[len(keep):])
	return keep
}

func (c *core) expireWaiting(e *entity) {
	for range e.waiting.len {
		if r := e.waiting.pop(); c.late(r) {
			c.settle(e.shard, r, Result{Err: ErrDeadline})
		} else {
			e.waiting.push(r)
		}
	}
}

func (c *core) late(r *Request) bool {
	return !r.Deadline.IsZero() && r.Deadline.Before(c.now)
}
