package entity

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/sharding"
)

const (
	// turnRequests bounds the requests of one entity that are decided before
	// the others have their turn, turnEntities the turns before what was
	// decided is proposed.
	turnRequests = 256
	turnEntities = 256
	// inboxRequests bounds the requests that wait for the lane.
	inboxRequests = 1 << 16
	// expireEvery is how often deadlines are looked at while requests wait.
	expireEvery = 50 * time.Millisecond
)

type eventKind uint8

const (
	evLeader eventKind = iota
	evTerm
	evDecided
	evReadConfirmed
	evReadFailed
	evChunk
	evReturned
	evBindings
	evTimers
	evParked
	evReopen
	evHot
	evLiving
	evIdleTimes
	evAnswered
)

// event is an input of the core other than a request.
type event struct {
	kind   eventKind
	self   bool
	shard  sharding.ShardID
	term   sharding.Term
	number uint64 // proposal, or read round
	clock  int64
	bound  uint64 // the shard's binding revision
	err    error
	chunk  *loadChunk
	call   *call
	scan   *timerScan
	parked *parkedSurvey
	hot    *hotSurvey
	living *livingScan
	ask    *inquiry
	index  uint64 // of the entry
}

// Lane is the goroutine that runs the entities of its shards. Its methods are
// safe for concurrent use and never block, Close excepted.
type Lane struct {
	core   *core
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
	now    func() time.Time
	reads  readers
	scans  context.Context
	endAll context.CancelFunc // of scans

	visits   uint64 // numbers them; the lane's goroutine only
	current  atomic.Pointer[call]
	turns    atomic.Uint64
	began    chan struct{}
	overseen chan struct{} // closed when the overseer has ended

	mu     sync.Mutex
	closed bool
	reqs   []*Request
	events []event

	stats struct {
		latest   atomic.Pointer[Stats]
		overruns atomic.Uint64
	}
}

// NewLane starts a lane. readOnly is asked before each command is carried
// out; while it says true commands are refused and queries go on.
func NewLane(opts Options, readOnly func() bool) *Lane {
	l := &Lane{
		wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
		done: make(chan struct{}),

		began:    make(chan struct{}, 1),
		overseen: make(chan struct{}),
	}
	l.core = newCore(opts, l, l)
	l.core.salt = rand.Uint64()
	if readOnly != nil {
		l.core.readOnly = readOnly
	}
	l.now = l.core.opts.Now
	l.scans, l.endAll = context.WithCancel(context.Background())
	l.reads.start(l.core.opts.Loaders)
	l.stats.latest.Store(&Stats{})
	l.current.Store(l.core.call)
	go l.oversee()
	go l.run(false)
	return l
}

// Submit takes requests in order; each is completed exactly once.
func (l *Lane) Submit(reqs []*Request) {
	l.mu.Lock()
	if l.closed || len(l.reqs)+len(reqs) > inboxRequests {
		err := ErrBusy
		if l.closed {
			err = ErrStopped
		}
		l.mu.Unlock()
		for _, r := range reqs {
			r.Result = Result{Err: err}
			r.Done.Complete(r)
		}
		return
	}
	l.reqs = append(l.reqs, reqs...)
	l.mu.Unlock()
	l.signal()
}

// LeaderChanged tells of an election of the shard: whether this node won it.
func (l *Lane) LeaderChanged(shard sharding.ShardID, term sharding.Term, self bool) {
	l.put(event{kind: evLeader, shard: shard, term: term, self: self})
}

// Applied is one outcome of the shard's log, in order.
type Applied struct {
	Shard    sharding.ShardID
	Term     sharding.Term // of the raft entry
	NoOp     bool          // a new leader's first entry: everything before it is applied
	Fence    sharding.Term
	Proposal uint64
	Index    uint64 // of the raft entry
	Clock    int64  // the shard's log clock after it
	Revision uint64 // the shard's binding revision after it
	Err      error  // nil: the entry took effect
}

// Applied tells the outcomes of entries.
func (l *Lane) Applied(as []Applied) {
	l.mu.Lock()
	for i := range as {
		a := &as[i]
		ev := event{kind: evDecided, shard: a.Shard, term: a.Fence, number: a.Proposal, clock: a.Clock, bound: a.Revision, err: a.Err, index: a.Index}
		if a.NoOp {
			ev.kind, ev.term = evTerm, a.Term
		}
		l.events = append(l.events, ev)
	}
	l.mu.Unlock()
	l.signal()
}

// BindingsMoved tells that Options.Bindings returns more than before.
func (l *Lane) BindingsMoved() { l.put(event{kind: evBindings}) }

// IdleTimesMoved tells that Options.IdleAfter returns something else than
// before.
func (l *Lane) IdleTimesMoved() { l.put(event{kind: evIdleTimes}) }

// Dropped tells that a proposal never entered the log, and why.
func (l *Lane) Dropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, why error) {
	l.put(event{kind: evDecided, shard: shard, term: fence, number: proposal, err: notApplied(why)})
}

// ReadConfirmed tells that this node led the shard after the round was asked.
func (l *Lane) ReadConfirmed(shard sharding.ShardID, round uint64) {
	l.put(event{kind: evReadConfirmed, shard: shard, number: round})
}

// ReadFailed tells that a round could not be confirmed.
func (l *Lane) ReadFailed(shard sharding.ShardID, round uint64) {
	l.put(event{kind: evReadFailed, shard: shard, number: round})
}

// Stats returns counters at most one turn old.
func (l *Lane) Stats() Stats {
	st := *l.stats.latest.Load()
	st.Overruns = l.stats.overruns.Load()
	return st
}

// Close answers everything that waits and stops. What is proposed may still
// be committed: its callers are told that the outcome is unknown.
func (l *Lane) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	for _, ended := range []chan struct{}{l.overseen, l.done} {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *Lane) put(ev event) {
	l.mu.Lock()
	l.events = append(l.events, ev)
	l.mu.Unlock()
	l.signal()
}

func (l *Lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the lane's loop. It starts again on another goroutine, resumed, when
// a visit runs long; done is closed by the one that ends the lane.
func (l *Lane) run(resumed bool) {
	if resumed {
		l.core.goOn()
		l.current.Store(l.core.call)
		l.core.now = l.now()
		l.core.pump()
		l.core.endTurn()
		l.signal()
	}
	timer := time.NewTimer(expireEvery)
	timer.Stop()
	var due time.Time // of the timer; zero when it is not set
	var reqs []*Request
	var events []event
	for {
		select {
		case <-l.stop:
			l.shutdown()
			close(l.done)
			return
		case <-timer.C:
			due = time.Time{}
			l.core.now = l.now()
			l.core.expire()
			l.core.passivateIdle()
			l.core.pump()
			l.core.endTurn()
		case <-l.wake:
		}
		l.turns.Add(1)
		select {
		case l.began <- struct{}{}:
		default:
		}
		for {
			clear(reqs)
			clear(events)
			l.mu.Lock()
			reqs, l.reqs = l.reqs, reqs[:0]
			events, l.events = l.events, events[:0]
			l.mu.Unlock()
			if len(reqs) == 0 && len(events) == 0 {
				break
			}
			l.turn(events, reqs)
		}
		due = l.arm(timer, due)
		l.publish()
	}
}

// arm sets the timer for what is due first: deadlines, or entities that have
// been idle. A timer that goes off too early costs nothing but a look.
func (l *Lane) arm(timer *time.Timer, due time.Time) time.Time {
	c := l.core
	var at time.Time
	if c.owed > 0 {
		at = c.now.Add(expireEvery)
	}
	for _, t := range [...]int64{c.sweepAt, c.timersAt, c.reminder.at} {
		if next := time.Unix(0, max(t, c.now.UnixNano()+int64(time.Millisecond))); t != 0 && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	if at.IsZero() {
		return due
	}
	if !due.IsZero() && !at.Before(due) {
		return due
	}
	timer.Reset(at.Sub(c.now))
	return at
}

// turn feeds the core one round of inputs, outcomes before requests.
func (l *Lane) turn(events []event, reqs []*Request) {
	c := l.core
	c.now = l.now()
	for i := range events {
		c.event(&events[i])
	}
	c.submit(c.now, reqs)
	c.pump()
	c.endTurn()
}

func (c *core) event(ev *event) {
	switch ev.kind {
	case evLeader:
		c.leaderChanged(ev.shard, ev.term, ev.self)
	case evTerm:
		c.termStarted(ev.shard, ev.term, ev.clock, ev.bound)
	case evDecided:
		if s := c.shards[ev.shard]; s != nil {
			c.index = ev.index
			c.decide(s, ev.term, ev.number, ev.err)
		}
	case evReadConfirmed:
		c.readConfirmed(ev.shard, ev.number)
	case evReadFailed:
		c.readFailed(ev.shard, ev.number)
	case evChunk:
		c.loaded(ev.chunk)
	case evReturned:
		c.cameBack(ev.call)
	case evAnswered:
		c.answered(ev.ask)
	case evTimers:
		c.timersFound(ev.scan)
	case evIdleTimes:
		c.idleTimesMoved()
	case evLiving:
		c.livingFound(ev.living)
	case evBindings:
		c.bindingsMoved()
	case evParked:
		c.findParked(ev.parked)
	case evHot:
		ev.hot.report = c.heat.report(c.now.UnixNano(), ev.hot.limit)
		close(ev.hot.done)
	case evReopen:
		c.reopen(ev.shard, ev.clock)
	}
}

func (l *Lane) publish() {
	c := l.core
	st := c.stats
	st.Entities, st.Resident = c.known, c.residents.cache.count+c.residents.cache.apart
	st.Instances, st.GuestBytes = c.usage()
	st.Folded, st.FoldedBytes = c.residents.cache.apart, c.pages.bytes()
	l.stats.latest.Store(&st)
}

func (l *Lane) shutdown() {
	l.mu.Lock()
	reqs := l.reqs
	l.reqs, l.events = nil, nil
	l.mu.Unlock()
	c := l.core
	c.discardFolds()
	for _, s := range c.shards {
		c.stepDown(s)
	}
	for v := range c.visits { // a guest that is slow to come back holds nobody up
		if v.req != nil {
			c.settle(v.entity.shard, v.req, Result{Err: ErrStopped})
			v.req = nil
		}
		if guest := v.in.guest; guest != nil {
			guest.Interrupt()
		}
	}
	for _, r := range reqs {
		c.finish(r, Result{Err: ErrStopped})
	}
	for len(c.instances) > 0 {
		c.closeInstance(c.instances[0])
	}
	l.awaitVisits()
	l.publish()
	l.endAll()
	l.reads.close()
}

// visitsEnd bounds the wait for guests at the end: they have been interrupted,
// but for those that start, which spend their fuel.
const visitsEnd = 5 * time.Second

// awaitVisits takes back the visits that the lane went on without, so that
// their guests are closed.
func (l *Lane) awaitVisits() {
	c := l.core
	late := time.NewTimer(visitsEnd)
	defer late.Stop()
	for len(c.visits) > 0 {
		select {
		case <-l.wake:
		case <-late.C:
			c.opts.Logger.Warn("guests did not come back before the lane ended", "guests", len(c.visits))
			return
		}
		l.mu.Lock()
		events := l.events
		l.events = nil
		l.mu.Unlock()
		for i := range events {
			if v := events[i].call; events[i].kind == evReturned {
				delete(c.visits, v)
				v.in.busy, v.in.guest = false, v.guest
				c.shut(v.in)
			}
		}
	}
}
