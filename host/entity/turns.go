package entity

import (
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

const (
	// turnRequests bounds the requests of an entity in one turn. turnEntities
	// bounds the turns before their decisions are proposed.
	turnRequests = 256
	turnEntities = 256
	// expireEvery is the interval of checks for passed deadlines while requests
	// wait.
	expireEvery = 50 * time.Millisecond
)

// coreTurns drives a core: it passes inputs to the core and reports when the
// core must be called next. Only one goroutine may use it at a time, except for
// TypeStats.
type coreTurns struct{ core *core }

// newCoreTurns returns the turns of an executor that leads no shard. While the
// disk d is full, commands are rejected; d may be nil. salt must be random.
func newCoreTurns(opts Options, r guestRunner, d disk, salt uint64) *coreTurns {
	c := newCore(opts, r)
	c.salt, c.ready.Salt, c.disk = salt, salt, d
	return &coreTurns{c}
}

// Take passes one round of inputs to the core, events before requests.
func (t *coreTurns) Take(now time.Time, events []coreEvent, reqs []*request.Request) {
	c := t.core
	c.now = now
	for i := range events {
		c.event(&events[i])
	}
	c.submit(now, reqs)
	c.runTurns()
	c.endTurn()
}

// Resume continues without the guest call in progress.
func (t *coreTurns) Resume(now time.Time) {
	c := t.core
	c.detachCall()
	c.now = now
	c.runTurns()
	c.endTurn()
}

// Tick does the work that is due at the given time.
func (t *coreTurns) Tick(now time.Time) {
	c := t.core
	c.now = now
	c.expire()
	c.residents.passivateIdle()
	c.faulted.Look(now)
	c.runTurns()
	c.endTurn()
}

// Next returns the time of the next Tick and how long after the last turn that
// is, or zeros if none is needed. A Tick that comes too early is harmless.
func (t *coreTurns) Next() (at time.Time, after time.Duration) {
	c := t.core
	switch {
	case len(c.leaving) > 0, c.windows.bytes > c.opts.WindowBytes:
		at = c.now.Add(time.Millisecond)
	case c.owed > 0:
		at = c.now.Add(expireEvery)
	}
	for _, due := range [...]int64{c.residents.sweepAt, c.timers.At(), c.alwaysOn.At(), c.faulted.At()} {
		if next := time.Unix(0, max(due, c.now.UnixNano()+int64(time.Millisecond))); due != 0 && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return at, at.Sub(c.now)
}

// Stats returns the statistics, without Preemptions.
func (t *coreTurns) Stats() Stats {
	c := t.core
	st := c.stats
	counts := c.timers.Counts()
	st.Timers, st.TimersDue, st.AlwaysOnStarts = counts.Fired, counts.Due, c.alwaysOn.StartCount()
	st.Entities, st.Resident = c.residents.known, c.residents.cache.Count()+c.residents.cache.HibernatedCount()
	st.Instances, st.GuestBytes = c.residents.usage()
	st.Hibernated, st.HibernatedBytes = c.residents.cache.HibernatedCount(), c.residents.hibernated.Bytes()
	st.WindowBytes = c.windows.bytes
	return st
}

// TypeStats returns the counters by entity type. It is safe for concurrent use.
func (t *coreTurns) TypeStats() map[string]TypeStats { return t.core.residents.types.Stats() }

// Hot returns the busiest entities, at most limit.
func (t *coreTurns) Hot(limit int) resident.HotReport {
	return t.core.heat.Report(t.core.now.UnixNano(), limit)
}

// QuarantineQuery selects quarantined entities of a shard.
type QuarantineQuery struct {
	Shard    sharding.ShardID
	Type     string
	IDPrefix string
	After    string // only ids greater than this one
	Limit    int    // at least 1
}

// ListQuarantined returns the ids of quarantined entities in order, at most q.Limit. It
// fails with a NotLeaderError if the executor does not lead the shard.
func (t *coreTurns) ListQuarantined(q QuarantineQuery) (ids []string, err error) {
	s := t.core.shards[q.Shard]
	if s == nil || s.state != leading {
		return nil, &sharding.NotLeaderError{Shard: q.Shard}
	}
	s.quarantine.Each(s.now, func(e *entity) {
		full := len(ids) == q.Limit
		if e.id.Type != q.Type || e.id.ID <= q.After || full && e.id.ID >= ids[len(ids)-1] || !strings.HasPrefix(e.id.ID, q.IDPrefix) || !t.core.isQuarantined(e) {
			return
		}
		if full {
			ids = ids[:len(ids)-1]
		}
		at, _ := slices.BinarySearch(ids, e.id.ID)
		ids = slices.Insert(ids, at, e.id.ID)
	})
	return ids, nil
}

// Close answers all waiting requests, including reqs, and closes the guests. It
// interrupts detached guest calls; TakeBack handles their events.
func (t *coreTurns) Close(reqs []*request.Request) {
	c := t.core
	c.residents.discardHibernated()
	for _, s := range c.shards {
		c.stepDown(s)
	}
	for v := range c.detachedCalls { // do not wait for a slow guest
		if v.req != nil {
			v.entity.shard.settle(v.req, request.Result{Err: request.ErrStopped})
			v.req = nil
		}
		if guest := v.in.Guest(); guest != nil {
			guest.Interrupt()
		}
	}
	for _, r := range reqs {
		c.finish(r, request.Result{Err: request.ErrStopped})
	}
	for len(c.residents.pools.All()) > 0 {
		c.residents.closeInstance(c.residents.pools.All()[0])
	}
}

// TakeBack closes the guests of detached calls that have returned after Close,
// and returns the number of calls that have not.
func (t *coreTurns) TakeBack(events []coreEvent) (away int) {
	c := t.core
	for i := range events {
		if v := events[i].Call; events[i].Kind == eventCallReturned {
			delete(c.detachedCalls, v)
			v.in.End(v.guest)
			c.residents.shut(v.in)
		}
	}
	return len(c.detachedCalls)
}
