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
	// turnRequests bounds the requests of one entity that are decided before
	// the others have their turn, turnEntities the turns before what was
	// decided is proposed.
	turnRequests = 256
	turnEntities = 256
	// expireEvery is how often deadlines are looked at while requests wait.
	expireEvery = 50 * time.Millisecond
)

// coreTurns is a core as the loop around it sees it: what it takes, and when it
// wants to be looked after. One goroutine has it at a time, TypeStats excepted.
type coreTurns struct{ core *core }

// newCoreTurns returns the turns of an executor that leads nothing. While readOnly says
// true, commands are refused; nil: it never does. Salt is a random number.
func newCoreTurns(opts Options, r guestRunner, readOnly func() bool, salt uint64) *coreTurns {
	c := newCore(opts, r)
	c.salt, c.ready.Salt = salt, salt
	if readOnly != nil {
		c.readOnly = readOnly
	}
	return &coreTurns{c}
}

// Take feeds the core one round of inputs, outcomes before requests.
func (t *coreTurns) Take(now time.Time, events []coreEvent, reqs []*request.Request) {
	c := t.core
	c.now = now
	for i := range events {
		c.event(&events[i])
	}
	c.submit(now, reqs)
	c.pump()
	c.endTurn()
}

// Resume goes on without the visit that is under way.
func (t *coreTurns) Resume(now time.Time) {
	c := t.core
	c.detachVisit()
	c.now = now
	c.pump()
	c.endTurn()
}

// Tick looks after what is due by time alone.
func (t *coreTurns) Tick(now time.Time) {
	c := t.core
	c.now = now
	c.expire()
	c.residents.passivateIdle()
	c.faulted.Look(now)
	c.pump()
	c.endTurn()
}

// Next is when the next Tick is due, and how long after the last turn that is;
// zero for never. One that comes too early costs nothing but a look.
func (t *coreTurns) Next() (at time.Time, after time.Duration) {
	c := t.core
	switch {
	case len(c.leaving) > 0, c.windows.bytes > c.opts.WindowBytes:
		at = c.now.Add(time.Millisecond)
	case c.owed > 0:
		at = c.now.Add(expireEvery)
	}
	for _, due := range [...]int64{c.residents.sweepAt, c.timers.At(), c.starter.At(), c.faulted.At()} {
		if next := time.Unix(0, max(due, c.now.UnixNano()+int64(time.Millisecond))); due != 0 && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return at, at.Sub(c.now)
}

// Stats returns what the core has done, without Handovers.
func (t *coreTurns) Stats() Stats {
	c := t.core
	st := c.stats
	counts := c.timers.Counts()
	st.Timers, st.TimersDue, st.Remembered = counts.Fired, counts.Due, c.starter.Started()
	st.Entities, st.Resident = c.residents.known, c.residents.cache.Count()+c.residents.cache.Apart()
	st.Instances, st.GuestBytes = c.residents.usage()
	st.Dormant, st.DormantBytes = c.residents.cache.Apart(), c.residents.dormant.Bytes()
	st.WindowBytes = c.windows.bytes
	return st
}

// TypeStats returns the counters by entity type. It is safe for concurrent use.
func (t *coreTurns) TypeStats() map[string]TypeStats { return t.core.residents.types.Stats() }

// Hot returns which entities were asked for most, at most limit of them.
func (t *coreTurns) Hot(limit int) resident.HotReport {
	return t.core.heat.Report(t.core.now.UnixNano(), limit)
}

// ParkedQuery selects parked entities of a shard.
type ParkedQuery struct {
	Shard    sharding.ShardID
	Type     string
	IDPrefix string
	After    string // only ids greater than this
	Limit    int    // at least 1
}

// Parked returns the ids of entities that are parked, in order, at most
// q.Limit. It fails with a NotLeaderError where the executor does not lead the
// shard.
func (t *coreTurns) Parked(q ParkedQuery) (ids []string, err error) {
	s := t.core.shards[q.Shard]
	if s == nil || s.state != leading {
		return nil, &sharding.NotLeaderError{Shard: q.Shard}
	}
	s.parked.Each(s.now, func(e *entity) {
		full := len(ids) == q.Limit
		if e.id.Type != q.Type || e.id.ID <= q.After || full && e.id.ID >= ids[len(ids)-1] || !strings.HasPrefix(e.id.ID, q.IDPrefix) || !t.core.parked(e) {
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

// Close answers everything that waits, and these requests, and closes the
// guests. Calls that the executor went on without are interrupted, and brought back
// to TakeBack.
func (t *coreTurns) Close(reqs []*request.Request) {
	c := t.core
	c.residents.discardDormant()
	for _, s := range c.shards {
		c.stepDown(s)
	}
	for v := range c.visits { // a guest that is slow to come back holds nobody up
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

// TakeBack closes the guests of the calls that these events bring back after
// Close, and returns how many are still away.
func (t *coreTurns) TakeBack(events []coreEvent) (away int) {
	c := t.core
	for i := range events {
		if v := events[i].Call; events[i].Kind == eventCallReturned {
			delete(c.visits, v)
			v.in.End(v.guest)
			c.residents.shut(v.in)
		}
	}
	return len(c.visits)
}
