package timers

import (
	"errors"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// A timer that fails is held back for a while, and other timers must not wait
// for it. Thousands of timers may fail for one reason, so timers are also held
// back together: the timers of a type that is over a limit, on the executor,
// and the timers of a quarantined entity. A scan skips them, a window drops
// them, and neither uses the executor's rate. If an entity or a type has too
// many timers that are held back one by one, all its timers in the shard are
// held back together too. So the number of retries per second is bounded, and
// one type leaves room for the others in heldBackMost.

const (
	// heldBackMost bounds the failed timers of a shard that wait for a retry,
	// and heldGroupsMost its entities and types that do.
	heldBackMost   = 4096
	heldGroupsMost = 4096
	// Of heldBackMost, a type may have half and an entity a quarter.
	heldBackType   = heldBackMost / 2
	heldBackEntity = heldBackMost / 4
	// retry is how long a timer waits after its first failure. The wait doubles
	// up to retryMost after faults, and up to retryBusyMost if the failure may
	// be temporary.
	retry         = time.Second
	retryMost     = 5 * time.Minute
	retryBusyMost = 16 * time.Second
)

// heldBack is the retry state of a failed timer: when it may fire again and how
// often it failed.
type heldBack struct {
	until int64
	times int
}

// failures are the timers of a shard that are held back.
type failures struct {
	timers map[key]heldBack
	// entities and types count the timers in the map above.
	entities map[sharding.EntityID]int
	types    map[string]int
	// groups has the times until which all timers of an entity wait, or of a
	// type if the id is empty.
	groups map[sharding.EntityID]int64
}

// of returns the retry state of a timer.
func (b *failures) of(k key) (state heldBack, waits bool) {
	state, waits = b.timers[k]
	return state, waits
}

// put holds a timer back. If there is no room for the timer, it holds back its
// entity or its type.
func (b *failures) put(k key, state heldBack, now int64) {
	_, waits := b.timers[k]
	switch {
	case waits:
	case b.types[k.entity.Type] >= heldBackType || len(b.timers) >= heldBackMost:
		b.holdGroup(sharding.EntityID{Type: k.entity.Type}, max(state.until, now+int64(retry)))
		return
	case b.entities[k.entity] >= heldBackEntity:
		b.holdGroup(k.entity, max(state.until, now+int64(retry)))
		return
	case b.timers == nil:
		b.timers, b.entities, b.types = make(map[key]heldBack), make(map[sharding.EntityID]int), make(map[string]int)
	}
	if b.timers[k] = state; !waits {
		b.entities[k.entity]++
		b.types[k.entity.Type]++
	}
}

// drop forgets the failures of a timer.
func (b *failures) drop(k key) {
	if _, waits := b.timers[k]; !waits {
		return
	}
	delete(b.timers, k)
	if b.entities[k.entity]--; b.entities[k.entity] == 0 {
		delete(b.entities, k.entity)
	}
	if b.types[k.entity.Type]--; b.types[k.entity.Type] == 0 {
		delete(b.types, k.entity.Type)
	}
}

// holdGroup holds back all timers of an entity, or of a type if the id is
// empty. If there is no room for the entity, it holds back the entity's type.
func (b *failures) holdGroup(id sharding.EntityID, until int64) {
	if _, waits := b.groups[id]; !waits && id.ID != "" && len(b.groups) >= heldGroupsMost {
		id.ID = ""
	}
	if b.groups == nil {
		b.groups = make(map[sharding.EntityID]int64)
	}
	b.groups[id] = until
}

// groupUntil returns the time until which all timers of the entity wait, or 0.
func (b *failures) groupUntil(id sharding.EntityID, now int64) int64 {
	if len(b.groups) == 0 {
		return 0
	}
	until := max(b.groups[id], b.groups[sharding.EntityID{Type: id.Type}])
	if until <= now {
		return 0
	}
	return until
}

// heldUntil returns the time until which the entity's timers wait together, or
// 0 if they do not wait.
func (q *Timers) heldUntil(s *Shard, id sharding.EntityID, now int64) int64 {
	until := s.back.groupUntil(id, now)
	if len(q.limited) > 0 {
		if at := q.limited[id.Type]; at > now {
			until = max(until, at)
		}
	}
	return until
}

// noteFailure holds back a timer that failed, or all timers with the same
// reason, and schedules the retry. If the timer failed without a guest call,
// it does not count for the rate.
func (q *Timers) noteFailure(f *Firing, err error, now int64) {
	s := f.shard
	state, _ := s.back.of(f.key())
	wait := retry
	limited, overLimit := errors.AsType[*request.RateLimitedError](err)
	_, faulted := errors.AsType[*request.GuestFaultError](err)
	switch unknown := errors.Is(err, request.ErrUnknownCommand); {
	case overLimit:
		q.pace.refund()
		wait = min(max(limited.RetryAfter, 100*time.Millisecond), LimitLook)
		q.holdType(f.Timer.Entity.Type, now+int64(wait), now)
		q.Wake(s, now+int64(wait))
		return
	case errors.Is(err, request.ErrQuarantined):
		q.pace.refund()
		s.back.holdGroup(f.Timer.Entity, now+int64(wait))
		q.Wake(s, now+int64(wait))
		return
	case unknown || faulted || errors.Is(err, request.ErrOutputValue):
		if unknown {
			q.pace.refund()
		}
		wait = min(retry<<min(state.times, 10), retryMost)
		state.times++
	case errors.Is(err, request.ErrBusy) || errors.Is(err, request.ErrOutboxFull):
		wait = min(retry<<min(state.times, 10), retryBusyMost)
		state.times++
	}
	state.until = now + int64(wait)
	s.back.put(f.key(), state, now)
	q.Wake(s, state.until)
}

// holdType holds back all timers of a type, in all shards of the executor.
func (q *Timers) holdType(entityType string, until, now int64) {
	if q.limited == nil {
		q.limited = make(map[string]int64)
	}
	q.limited[entityType] = until
	if len(q.limited) > q.limitedMost {
		for t, at := range q.limited {
			if at <= now {
				delete(q.limited, t)
			}
		}
		q.limitedMost = max(64, 2*len(q.limited))
	}
}

// skipHeld gives a scan the timers that it must skip.
func (q *Timers) skipHeld(s *Shard, scan *Scan) {
	now := q.exec.Now().UnixNano()
	for k, b := range s.back.timers {
		if b.until+int64(retryMost) < scan.by {
			s.back.drop(k) // the timer no longer exists, or its type has waited for long
			continue
		}
		if b.until > scan.by {
			if scan.skip == nil {
				scan.skip = make(map[key]heldBack)
			}
			scan.skip[k] = b
			q.Wake(s, b.until)
		}
	}
	scan.skipUntil = make(map[sharding.EntityID]int64, len(s.back.groups)+len(q.limited))
	for id, until := range s.back.groups {
		if until > now {
			scan.skipUntil[id] = until
		} else {
			delete(s.back.groups, id)
		}
	}
	for t, until := range q.limited {
		if id := (sharding.EntityID{Type: t}); until > now {
			scan.skipUntil[id] = max(until, scan.skipUntil[id])
		}
	}
}

// isHeld reports whether the timers of an entity wait together, and notes when
// they must be read again.
func (t *Scan) isHeld(id sharding.EntityID) bool {
	if len(t.skipUntil) == 0 {
		return false
	}
	until := max(t.skipUntil[id], t.skipUntil[sharding.EntityID{Type: id.Type}])
	if until == 0 {
		return false
	}
	if t.readAt == 0 || until < t.readAt {
		t.readAt = until
	}
	return true
}

// dropHeld removes the first timers of a window if they are held back, without
// use of the rate. They are read again later.
func (q *Timers) dropHeld(s *Shard, now int64) {
	n := 0
	for n < len(s.window) {
		until := q.heldUntil(s, s.window[n].Entity, now)
		if until == 0 {
			break
		}
		s.window[n] = journal.Timer{}
		n++
		q.Wake(s, until)
	}
	if n > 0 {
		q.trimWindow(s, n)
		q.pace.ahead -= n
		q.due -= n
		q.noteDone(s, n)
	}
}

// trimWindow removes the first n timers of a window.
func (q *Timers) trimWindow(s *Shard, n int) {
	if s.window = s.window[n:]; len(s.window) == 0 {
		s.window = nil
	}
}

// noteDone notes that n timers of the shard's last scan need no further work.
func (q *Timers) noteDone(s *Shard, n int) {
	if s.firing -= n; s.firing == 0 && s.at != 0 {
		q.Wake(s, s.at)
	}
}
