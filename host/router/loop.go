package router

import (
	"time"

	"github.com/hostd/hostd/sharding"
)

// run dispatches held requests when their leader becomes known, and fails
// requests that have waited too long.
func (r *Router) run() {
	defer close(r.done)
	timer := time.NewTimer(refreshEvery)
	defer timer.Stop()
	active := make(map[*shardSlot]struct{}) // routes with held requests
	var asked time.Time
	for {
		changed := r.opts.Leaders.Changed()
		now := r.opts.Clock()
		r.limits.look(r.opts.Pauses.Epoch())
		next := asked.Add(refreshEvery)
		if !now.Before(next) {
			asked, next = now, now.Add(refreshEvery)
			r.refresh()
		}
		for _, s := range r.takeReady() {
			active[s] = struct{}{}
		}
		for s := range active {
			at := r.dispatchHeld(s, now)
			if at.IsZero() {
				delete(active, s)
			}
			next = sooner(next, at)
		}
		timer.Reset(max(next.Sub(now), 200*time.Microsecond))
		select {
		case <-r.wake:
		case <-timer.C:
		case <-changed:
			asked = time.Time{}
		case <-r.stop:
			for i := range r.slots {
				r.shut(&r.slots[i])
			}
			return
		}
	}
}

// look raises the epoch that new requests get. It never lowers it.
func (l *limits) look(epoch uint64) {
	for now := l.epoch.Load(); now < epoch && !l.epoch.CompareAndSwap(now, epoch); now = l.epoch.Load() {
	}
}

func (r *Router) takeReady() []*shardSlot {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := r.ready
	r.ready = nil
	for _, s := range ready {
		s.queued = false
	}
	return ready
}

// refresh updates every route's knowledge of its leader.
func (r *Router) refresh() {
	for i := range r.slots {
		if sharding.ShardID(i) == sharding.MetaShard {
			continue
		}
		s := &r.slots[i]
		l := r.ask(sharding.ShardID(i))
		s.mu.Lock()
		s.route.updateLead(l)
		answers := s.route.takeAnswers()
		pending := s.route.pending()
		s.mu.Unlock()
		finishAll(answers)
		if pending {
			r.look(s)
		}
	}
}

func (r *Router) ask(shard sharding.ShardID) lead {
	l := lead{quorum: r.opts.Leaders.Quorum(shard), stopped: r.opts.Leaders.StopReason(shard)}
	if node, self, known := r.opts.Leaders.Leader(shard); known {
		l.to = target{node: node, self: self}
	} else {
		l.candidates = r.opts.Leaders.Candidates(shard)
		l.missing = r.opts.Leaders.Missing(shard)
	}
	return l
}

// dispatchHeld dispatches the requests that a shard holds. It returns the time of the
// next attempt, or zero if there is nothing to do until the slot is queued
// again.
func (r *Router) dispatchHeld(s *shardSlot, now time.Time) time.Time {
	for {
		s.mu.Lock()
		s.route.held.limit(now, r.limits.patience)
		s.route.expire(now)
		batch := s.route.next(now, r.batch[:0], batchRequests)
		to := s.route.to
		answers := s.route.takeAnswers()
		at := s.route.wakeAt()
		s.mu.Unlock()
		finishAll(answers)
		if len(batch) == 0 {
			return at
		}
		r.dispatch(to, batch)
		clear(batch)
		r.batch = batch
	}
}

func (r *Router) shut(s *shardSlot) {
	s.mu.Lock()
	s.route.close()
	answers := s.route.takeAnswers()
	s.mu.Unlock()
	finishAll(answers)
}
