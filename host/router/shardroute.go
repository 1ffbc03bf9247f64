package router

import (
	"errors"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// state of the route of a shard's requests:
//
//	           leader known                    nothing held
//	waiting ----------------> releasing ---------------------> flowing
//	 ^  |  ^                    ^     \                           |
//	 |  |  |     it answered    |      \ one came back,           | or the
//	 |  |  +-- probing ---------+       \ others are out          | leader moved
//	 |  |      ^     \                   v                        |
//	 |  +------+      \ it came back   draining <-----------------+
//	 |   a guess       \                 |
//	 +------------------+----------------+ nothing is out any more
//
// All requests that are out went to one node. They have all come back before
// the first goes to another, or to the same again: so none can be overtaken by
// a later one that took another way.
type state uint8

const (
	waiting   state = iota // nothing is out; requests are held until a leader is known
	probing                // one request is out, to a node that may lead
	releasing              // what is held is being handed over; new requests queue behind
	flowing                // requests go out as they come
	draining               // requests are out that may come back; others are held
)

// target is where requests go; the zero value is nowhere.
type target struct {
	node sharding.NodeID
	self bool
}

// lead is what the node knows of a shard's leader.
type lead struct {
	to         target // nowhere while no leader is known
	quorum     bool
	stopped    sharding.StopReason // the replica here
	candidates []sharding.NodeID
	missing    sharding.Missing // while no leader is known
}

// limits bound a route.
type limits struct {
	requests, bytes    int
	total              *budget
	minPause, maxPause time.Duration
	patience           time.Duration // for a leader
	self               sharding.NodeID
	seed               maphash.Seed  // of the keys of entities
	epoch              atomic.Uint64 // of what arrives now
}

// shardRoute is the way of one shard's requests: a state machine without
// goroutine, lock or clock. What it completes by itself goes to answers.
type shardRoute struct {
	shard  sharding.ShardID
	limits *limits

	state   state
	to      target // where what is out went
	out     int
	number  uint64 // of the last request that arrived
	round   uint64 // of what is out
	held    queue
	back    []*request.Request // came back, in no order
	ran     ran
	answers []*request.Request
	closed  bool

	known   lead
	learned target // led the shard when it was asked
	hint    target // leads the shard, says a node that does not
	turn    int    // of the candidates
	pause   time.Duration
	until   time.Time // no attempt before
}

func newShardRoute(shard sharding.ShardID, l *limits) shardRoute {
	return shardRoute{shard: shard, round: 1, limits: l, held: queue{total: l.total}}
}

// pending reports that the route has something for next to do, now or later.
func (f *shardRoute) pending() bool {
	return f.state == releasing || f.state == draining && len(f.back) > 0 || f.held.len() > 0 || f.state == waiting && f.known.to != target{}
}

// takeAnswers returns the requests that the route has completed by itself.
func (f *shardRoute) takeAnswers() []*request.Request {
	answers := f.answers
	f.answers = nil
	return answers
}

// verdict says what becomes of a request.
type verdict uint8

const (
	send   verdict = iota // to route.to, now
	hold                  // the route has it
	answer                // its result is set
)

// admit takes a new request.
func (f *shardRoute) admit(q *request.Request) verdict {
	f.number++
	q.Route.Number, q.Route.Epoch = f.number, f.limits.epoch.Load()
	switch {
	case f.closed:
		q.Result = request.Result{Err: request.ErrStopped}
		return answer
	case !f.known.quorum:
		q.Result = request.Result{Err: f.notLed()}
		return answer
	case f.state == flowing:
		f.leave(q)
		return send
	case !f.held.room(f.limits, q):
		q.Result = request.Result{Err: request.ErrBusy}
		return answer
	}
	f.held.push(q)
	return hold
}

// leave marks a request as out.
func (f *shardRoute) leave(q *request.Request) {
	f.out++
	q.Route.Round, q.Route.Node, q.Route.Self = f.round, f.to.node, f.to.self
}

// completed takes the outcome of a request that was out. The verdict is answer
// or hold.
func (f *shardRoute) completed(q *request.Request, now time.Time) verdict {
	f.out--
	v := answer
	if q.Result.Err == nil || !comesBack(q) {
		f.ended(q)
	} else {
		f.bounced(q, now)
		if q.Route.Until.IsZero() || isUnknown(q) {
			q.Route.Until = limitOf(q, now, f.limits.patience) // it was with a node until now
		}
		gaveUp := f.gaveUp(q, now)
		if !gaveUp {
			v = hold
		}
		f.back = putBack(f.back, q, gaveUp)
	}
	if f.state == draining && drained(f.out) {
		f.drained()
	}
	return v
}

// ended notes that a request has an outcome.
func (f *shardRoute) ended(q *request.Request) {
	err := q.Result.Err
	if q.Kind.HasID() && !errors.Is(err, request.ErrBusy) {
		f.ran.note(f.limits.keyOf(q), q.Route.Number)
	}
	if q.Route.Unknown && !settled(err, q.Route.UnderWay) {
		q.Result.Err = stillUnknown(err)
	}
	if f.state != probing {
		return
	}
	if !byLeader(err) {
		f.state = waiting // it may have been turned away on the way
		return
	}
	if f.to != f.known.to {
		f.learned = f.to
	}
	f.hint, f.pause = target{}, 0
	f.state = releasing
}

// bounced notes that the node which has what is out does not lead the shard,
// or is not reached.
func (f *shardRoute) bounced(q *request.Request, now time.Time) {
	if f.state != flowing && f.state != releasing && f.state != probing {
		return
	}
	f.learned, f.hint = target{}, target{}
	f.turn++
	first := f.pause == 0
	f.pause = min(max(2*f.pause, f.limits.minPause), f.limits.maxPause)
	f.until = now.Add(f.pause)
	if node := hintOf(q.Result.Err); node != "" && node != f.to.node {
		f.hint = target{node: node, self: node == f.limits.self}
		if first {
			f.until = now
		}
	}
	f.state = draining
}

// drained puts what came back in front of what is held.
func (f *shardRoute) drained() {
	f.state = waiting
	f.round++
	slices.SortFunc(f.back, func(a, b *request.Request) int {
		if a.Route.Number < b.Route.Number {
			return -1
		}
		return 1
	})
	// Where a node does not lead, nothing later of the round has run there. But
	// it goes on after it lost a proposal: a command that was in it must not
	// follow one that may have run.
	unknown := make(map[uint64]bool) // by entity
	for i, q := range slices.Backward(f.back) {
		switch {
		case !q.Kind.HasID():
		case f.overtaken(q), errors.Is(q.Result.Err, request.ErrNotApplied) && unknown[f.limits.keyOf(q)]:
			f.give(q, q.Result.Err)
			f.back[i] = nil
		case isUnknown(q):
			unknown[f.limits.keyOf(q)] = true
		}
	}
	again := slices.DeleteFunc(f.back, func(q *request.Request) bool { return q == nil })
	f.held.prepend(again)
	clear(f.back)
	f.back = f.back[:0]
}

// gaveUp reports that a request which came back is not sent again, and sets
// its result.
func (f *shardRoute) gaveUp(q *request.Request, now time.Time) bool {
	err := q.Result.Err
	switch {
	case f.closed:
		err = request.ErrStopped
	case !f.known.quorum:
		err = f.notLed()
	case f.late(q, now):
		err = request.ErrDeadline
	case !f.overtaken(q):
		return false
	}
	fail(q, err)
	return true
}

// overtaken reports that a later command to the same entity may have an
// outcome: sending this one again would turn their order round.
func (f *shardRoute) overtaken(q *request.Request) bool {
	return q.Kind.HasID() && passed(f.ran.of(f.limits.keyOf(q)), q.Route.Number)
}

// give answers a request that the route has.
func (f *shardRoute) give(q *request.Request, err error) {
	fail(q, err)
	f.answers = append(f.answers, q)
}

func (f *shardRoute) notLed() error {
	return &sharding.NotLeaderError{Shard: f.shard, Leader: f.known.to.node, Stopped: f.known.stopped, Missing: f.known.missing}
}

// heard takes what the node knows of the leader now.
func (f *shardRoute) heard(l lead) {
	moved := l.to != f.known.to
	f.known = l
	if moved {
		f.learned, f.hint, f.pause, f.until = target{}, target{}, 0, time.Time{}
	}
	if !l.quorum {
		f.failAll(f.notLed())
	}
	if to, _ := f.choose(); to != f.to && (f.state == flowing || f.state == releasing) {
		if f.state = draining; drained(f.out) {
			f.drained()
		}
	}
}

// choose returns where the next request should go; sure says that it need not
// be tried with one alone.
func (f *shardRoute) choose() (to target, sure bool) {
	switch {
	case f.learned != target{}:
		return f.learned, true
	case f.hint != target{}:
		return f.hint, false
	case f.known.to != target{}:
		return f.known.to, true
	case len(f.known.candidates) == 0 || slices.Contains(f.known.candidates, f.limits.self):
		return target{}, false
	}
	return target{node: f.known.candidates[f.turn%len(f.known.candidates)]}, false
}

// next appends to batch what is to be handed to f.to now, up to limit requests.
func (f *shardRoute) next(now time.Time, batch []*request.Request, limit int) []*request.Request {
	if f.state == waiting {
		to, sure := f.choose()
		if to == (target{}) || now.Before(f.until) {
			return batch
		}
		if sure = sure && f.pause == 0; !sure {
			limit = 1
		}
		if f.held.len() == 0 && !sure {
			return batch
		}
		if f.to, f.state = to, releasing; !sure {
			f.state = probing
		}
	} else if f.state != releasing {
		return batch
	}
	for len(batch) < limit && f.held.len() > 0 {
		q := f.held.pop()
		if f.late(q, now) {
			f.give(q, request.ErrDeadline)
			continue
		}
		f.leave(q)
		batch = append(batch, q)
	}
	if len(batch) > 0 {
		return batch // new requests queue behind it until it is handed over
	}
	if f.state == probing {
		f.state = waiting
	} else {
		f.state = flowing
	}
	return batch
}

// expire answers requests that have waited until their deadlines, and those
// that have waited long enough for a leader and certainly did not run.
func (f *shardRoute) expire(now time.Time) {
	if at := f.soonest(); at.IsZero() || !at.Before(now) {
		return
	}
	leaderless := f.leaderless()
	isOver := func(q *request.Request) bool {
		switch {
		case f.late(q, now):
			f.give(q, request.ErrDeadline)
			return true
		case q.Route.Unknown || !q.Route.Until.Before(now):
			return false
		case leaderless:
			f.give(q, f.notLed())
			return true
		}
		q.Route.Until = now.Add(f.limits.maxPause) // somebody is being asked: look again soon
		return false
	}
	f.held.remove(isOver)
	f.back = slices.DeleteFunc(f.back, isOver)
}

// leaderless reports that nothing is out, and that no node is known to lead the
// shard, or the one that is has just refused.
func (f *shardRoute) leaderless() bool {
	to, sure := f.choose()
	return f.state == waiting && (to == target{} || !sure || f.pause > 0)
}

// close answers everything that is held, and all that comes from now on.
func (f *shardRoute) close() {
	f.closed = true
	f.failAll(request.ErrStopped)
}

func (f *shardRoute) failAll(err error) {
	for f.held.len() > 0 {
		f.give(f.held.pop(), err)
	}
	for _, q := range f.back {
		f.give(q, err)
	}
	clear(f.back)
	f.back = f.back[:0]
}

// soonest is no later than the first deadline of what the route has.
func (f *shardRoute) soonest() time.Time {
	at := f.held.soonest
	for _, q := range f.back {
		at = sooner(at, due(q))
	}
	return at
}

// wakeAt is when the route has something to do by itself; zero is never.
func (f *shardRoute) wakeAt() time.Time {
	at := f.soonest()
	if f.state == waiting && f.held.len() > 0 {
		if to, _ := f.choose(); to != (target{}) {
			at = sooner(at, f.until)
		}
	}
	return at
}
