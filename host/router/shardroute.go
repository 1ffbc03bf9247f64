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

// state is the state of a shard's route:
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
// All requests that are out went to the same node. All of them must have come
// back before any is sent to a different node, or again to the same one.
// Therefore no request can be overtaken by a later request that took a different
// path.
type state uint8

const (
	waiting   state = iota // nothing is out; requests are held until a leader is known
	probing                // one request is out, to a node that may be the leader
	releasing              // held requests are being dispatched; new requests queue after them
	flowing                // requests are dispatched as they arrive
	draining               // some requests that are out may come back; others are held
)

// target is the destination of requests. The zero value is none.
type target struct {
	node sharding.NodeID
	self bool
}

// lead is what the node knows about a shard's leader.
type lead struct {
	to         target // zero if no leader is known
	quorum     bool
	stopped    sharding.StopReason // why this node's replica stopped
	candidates []sharding.NodeID
	missing    sharding.Missing // set if no leader is known
}

// limits are the bounds and shared values of all routes.
type limits struct {
	requests, bytes    int
	total              *budget
	minPause, maxPause time.Duration
	patience           time.Duration // how long a request waits for a leader
	self               sharding.NodeID
	seed               maphash.Seed  // seed of the hashes of entities
	epoch              atomic.Uint64 // epoch of requests that arrive now
}

// shardRoute routes the requests of one shard. It is a state machine without
// goroutine, lock or clock. It appends requests that it completes itself to
// answers.
//
// The requests of a caller to one entity must run in the order submitted,
// although leaders move and connections break while requests are out, and a
// command must not run twice.
//
// All requests that are out belong to one round and went to one node. When the
// first of them comes back, because the node does not lead or is unreachable,
// the route stops sending. When all of them are back, it sorts them by number,
// puts them before the held requests, begins a new round and chooses a node
// again. The node helps: once it has sent back one request of a round, it
// runs no other request of that round that arrives later, so a later request
// never runs before a returned one.
//
// A request that may have run is resent under its command id, so that the
// idempotency window deduplicates it. It is not resent if a later command of
// its entity has an outcome (see ran), because that would reverse their order;
// its caller then gets an error.
//
// If the leader is only guessed, from a hint or by asking candidates in turn,
// one request probes the node alone, so that a wrong guess does not move the
// whole queue back and forth.
//
// Resending each request on its own as it comes back would be simpler and
// recover faster. But a later request that is still out could then run first.
type shardRoute struct {
	shard  sharding.ShardID
	limits *limits

	state   state
	to      target // destination of the requests that are out
	out     int
	number  uint64 // number of the last request that arrived
	round   uint64 // number of the dispatch round; all requests that are out have it
	held    queue
	back    []*request.Request // requests that came back, unordered
	ran     ran
	answers []*request.Request
	closed  bool

	known   lead
	learned target // the node that answered as leader when it was probed
	hint    target // the leader that a node which does not lead the shard named
	turn    int    // index of the candidate to ask
	pause   time.Duration
	until   time.Time // no attempt before this time
}

func newShardRoute(shard sharding.ShardID, l *limits) shardRoute {
	return shardRoute{shard: shard, round: 1, limits: l, held: queue{total: l.total}}
}

// pending reports whether next has something to do, now or later.
func (f *shardRoute) pending() bool {
	return f.state == releasing || f.state == draining && len(f.back) > 0 || f.held.len() > 0 || f.state == waiting && f.known.to != target{}
}

// takeAnswers returns the requests that the route has completed itself.
func (f *shardRoute) takeAnswers() []*request.Request {
	answers := f.answers
	f.answers = nil
	return answers
}

// decision is what happens to a request.
type decision uint8

const (
	send   decision = iota // dispatch it to route.to now
	hold                   // the route holds it
	answer                 // its result is set; return it to the caller
)

// admit decides about a new request.
func (f *shardRoute) admit(q *request.Request) decision {
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

// complete receives the outcome of a request that was out. It returns answer or
// hold.
func (f *shardRoute) complete(q *request.Request, now time.Time) decision {
	f.out--
	v := answer
	if q.Result.Err == nil || !comesBack(q) {
		f.recordOutcome(q)
	} else {
		f.noteBounce(q, now)
		if q.Route.Until.IsZero() || isUnknown(q) {
			q.Route.Until = limitOf(q, now, f.limits.patience) // the time until now was spent at a node, not waiting for a leader
		}
		gaveUp := f.gaveUp(q, now)
		if !gaveUp {
			v = hold
		}
		f.back = putBack(f.back, q, gaveUp)
	}
	if f.state == draining && noneOut(f.out) {
		f.collectReturned()
	}
	return v
}

// recordOutcome records the outcome of a request that will not be resent.
func (f *shardRoute) recordOutcome(q *request.Request) {
	err := q.Result.Err
	if q.Kind.HasID() && !errors.Is(err, request.ErrBusy) {
		f.ran.note(f.limits.keyOf(q), q.Route.Number)
	}
	if q.Route.Unknown && !isFinal(err, q.Route.UnderWay) {
		q.Result.Err = stillUnknown(err)
	}
	if f.state != probing {
		return
	}
	if !byLeader(err) {
		f.state = waiting // the request may have failed before it reached the node
		return
	}
	if f.to != f.known.to {
		f.learned = f.to
	}
	f.hint, f.pause = target{}, 0
	f.state = releasing
}

// noteBounce records that the node which has the requests that are out does not
// lead the shard or is unreachable.
func (f *shardRoute) noteBounce(q *request.Request, now time.Time) {
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

// collectReturned is called when no request is out any more. It sorts the requests that
// came back and puts them before the held requests.
func (f *shardRoute) collectReturned() {
	f.state = waiting
	f.round++
	slices.SortFunc(f.back, func(a, b *request.Request) int {
		if a.Route.Number < b.Route.Number {
			return -1
		}
		return 1
	})
	// A node that does not lead the shard has run nothing later of this round.
	// But a leader continues after it lost a proposal. If a later command of
	// the same entity may have run, a command of the lost proposal must not be
	// resent, because it would run after the later command.
	unknown := make(map[uint64]bool) // by entity
	for i, q := range slices.Backward(f.back) {
		switch {
		case !q.Kind.HasID():
		case f.overtaken(q), errors.Is(q.Result.Err, request.ErrNotApplied) && unknown[f.limits.keyOf(q)]:
			f.answerHeld(q, q.Result.Err)
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

// gaveUp reports whether a request that came back is not resent, and sets its
// result if so.
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

// overtaken reports whether a later command to the same entity may have an
// outcome. Resending q would reverse the order of the two commands.
func (f *shardRoute) overtaken(q *request.Request) bool {
	return q.Kind.HasID() && isOvertaken(f.ran.of(f.limits.keyOf(q)), q.Route.Number)
}

// answerHeld answers a request that the route holds.
func (f *shardRoute) answerHeld(q *request.Request, err error) {
	fail(q, err)
	f.answers = append(f.answers, q)
}

func (f *shardRoute) notLed() error {
	return &sharding.NotLeaderError{Shard: f.shard, Leader: f.known.to.node, Stopped: f.known.stopped, Missing: f.known.missing}
}

// updateLead updates the node's knowledge of the leader.
func (f *shardRoute) updateLead(l lead) {
	moved := l.to != f.known.to
	f.known = l
	if moved {
		f.learned, f.hint, f.pause, f.until = target{}, target{}, 0, time.Time{}
	}
	if !l.quorum {
		f.failAll(f.notLed())
	}
	if to, _ := f.choose(); to != f.to && (f.state == flowing || f.state == releasing) {
		if f.state = draining; noneOut(f.out) {
			f.collectReturned()
		}
	}
}

// choose returns the destination of the next request. If sure is false, one
// request alone must probe the node first.
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

// next appends to batch the requests to dispatch to f.to now, up to limit.
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
			f.answerHeld(q, request.ErrDeadline)
			continue
		}
		f.leave(q)
		batch = append(batch, q)
	}
	if len(batch) > 0 {
		return batch // new requests queue after the batch until it is handed over
	}
	if f.state == probing {
		f.state = waiting
	} else {
		f.state = flowing
	}
	return batch
}

// expire answers requests whose deadlines have passed, and requests that
// certainly did not run and have waited long enough for a leader.
func (f *shardRoute) expire(now time.Time) {
	if at := f.soonest(); at.IsZero() || !at.Before(now) {
		return
	}
	leaderless := f.leaderless()
	isOver := func(q *request.Request) bool {
		switch {
		case f.late(q, now):
			f.answerHeld(q, request.ErrDeadline)
			return true
		case q.Route.Unknown || !q.Route.Until.Before(now):
			return false
		case leaderless:
			f.answerHeld(q, f.notLed())
			return true
		}
		q.Route.Until = now.Add(f.limits.maxPause) // a node is being asked, so check again soon
		return false
	}
	f.held.remove(isOver)
	f.back = slices.DeleteFunc(f.back, isOver)
}

// leaderless reports whether no request is out and either no node is known to
// lead the shard or the known leader has just failed a request.
func (f *shardRoute) leaderless() bool {
	to, sure := f.choose()
	return f.state == waiting && (to == target{} || !sure || f.pause > 0)
}

// close answers all held requests and makes admit fail later ones.
func (f *shardRoute) close() {
	f.closed = true
	f.failAll(request.ErrStopped)
}

func (f *shardRoute) failAll(err error) {
	for f.held.len() > 0 {
		f.answerHeld(f.held.pop(), err)
	}
	for _, q := range f.back {
		f.answerHeld(q, err)
	}
	clear(f.back)
	f.back = f.back[:0]
}

// soonest returns a lower bound of the due times of held requests.
func (f *shardRoute) soonest() time.Time {
	at := f.held.soonest
	for _, q := range f.back {
		at = sooner(at, due(q))
	}
	return at
}

// wakeAt returns when the route has something to do without an input; zero
// means never.
func (f *shardRoute) wakeAt() time.Time {
	at := f.soonest()
	if f.state == waiting && f.held.len() > 0 {
		if to, _ := f.choose(); to != (target{}) {
			at = sooner(at, f.until)
		}
	}
	return at
}
