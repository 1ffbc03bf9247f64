package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// phase is the phase of an entity in its executor:
//
//	           request, nothing in flight          history applied
//	cold ----------------------------------> loading ------------> inMemory
//	 ^  \ request, something in flight        ^  |                   |
//	 |   `--> draining --- last decided -----'   | damage, fault     | fault, lost
//	 |                                           v                   | events, evict
//	 +-------------------------------------------+-------------------+
type phase uint8

const (
	cold phase = iota
	draining
	loading
	inMemory
)

// entity is an entity of the executor. The executor keeps it unless it is cold
// and has no faults to remember.
type entity struct {
	id    sharding.EntityID
	shard *shard
	key   uint32 // result of resident.KeyOf for id

	phase phase
	waits
	seg     resident.Segment
	exists  bool // valid in memory: the entity has a record, and its last record did not delete it
	stopped bool // the entity left memory and must not be started before its next request
	costly  bool // the entity's load replayed much, and no snapshot was taken since
	replay  historyReplay

	// State in memory as the next command sees it, ahead of the commit.
	inst     *instance
	handle   uint32
	touched  resident.Tick // time of the last use; may be too early by up to touchEvery
	typ      *Type
	sequence journal.Sequence
	hash     journal.Hash
	seen     window.Window
	place    resident.Links[*entity]     // links in residents.cache
	idler    resident.IdleLinks[*entity] // links in the idle list of its type

	// last is the latest proposal with a record of this entity.
	last uint64
	// waiting are the undecided requests, in order.
	waiting request.Queue

	extra *extra // nil for most entities
}

// waits reports which lists of waiting entities have the entity.
type waits struct {
	queued           bool // the entity is in core.ready
	blocked          bool // the entity is in instance.blocked
	awaitsActivation bool // the entity is in shard.revisions.awaiting
	stalled          bool // the entity is in shard.stalled
}

// unload drops the state and leaves the entity cold.
func (e *entity) unload() {
	if l := e.load(); l != nil {
		l.cancel()
		e.extra.load = nil
	}
	e.phase, e.inst, e.typ, e.seen, e.replay, e.costly = cold, nil, nil, window.Window{}, historyReplay{}, false
	if e.extra != nil {
		e.extra.beyond.Filter, e.extra.beyond.Partial, e.extra.messages, e.extra.rowOnly, e.extra.windowStart = nil, false, nil, false, windowStart{}
		e.extra.stateCheck = residentCheck{}
	}
}

// core makes an executor's decisions. It is a state machine without goroutine,
// clock or I/O of its own. Its inputs are requests and events; its outputs go
// to the journal, the runner and the requests' completers. It moves entities
// through their phases; its parts decide which entities are in memory and how
// commands are decided.
type core struct {
	base
	residents     *residents
	decider       decider
	call          *guestCall              // the next guest call
	detachedCalls map[*guestCall]struct{} // calls that run without the executor
	alwaysOn      *alwaysOnStarter
	timers        *timers.Timers
	faulted       faultSet[*entity]
	snapshots     snapshots
	heat          resident.Heat
	index         uint64   // index of the log entry whose apply result is being taken
	leaving       []*shard // shards with entities of an ended leadership
	mayLeave      int      // number of entities of shards in leaving that may leave memory in this turn
}

// Stats counts the work of an executor since it started.
type Stats struct {
	Commands, Queries, Rejections, Duplicates, Faults, Loads, Events uint64
	AheadOfUs                                                        uint64 // deliveries whose time is too far ahead to become the log clock
	RateLimited                                                      uint64 // commands rejected by their type's limits per second
	Forgotten                                                        uint64 // rejected retries that are older than the entity's idempotency window
	BadOutputs                                                       uint64 // outputs that break the contract or exceed a limit
	Preemptions                                                      uint64 // guest calls that the executor continued without
	Proposals, ProposedRecords                                       uint64
	Refused                                                          uint64 // rejected messages
	Snapshots, SnapshotLoads                                         uint64 // snapshots proposed, and loads that used a snapshot
	SnapshotsTooLarge                                                uint64 // states too large for a snapshot
	Timers, AlwaysOnStarts                                           uint64 // timers fired, and always-on entities started
	Passivations, Shed, Recycled                                     uint64 // entities passivated when idle or on request, entities evicted to free memory, and instances closed to free memory
	Quarantines                                                      uint64 // times that an entity was quarantined
	TimersDue                                                        int    // due timers that were read and have not fired
	Resident                                                         int    // entities in memory
	Entities, Instances                                              int
	GuestBytes                                                       int64
	Hibernated                                                       int   // hibernated entities, which are in memory too
	HibernatedBytes                                                  int64 // memory of the pages that hold hibernated entities
	WindowBytes                                                      int64 // memory of idempotency windows
}

func newCore(opts Options, r guestRunner) *core {
	c := &core{
		base: base{
			opts: opts.withDefaults(), runner: r,
			shards: make(map[sharding.ShardID]*shard), unloaded: make(map[*entity]struct{}),
		},
		detachedCalls: make(map[*guestCall]struct{}),
	}
	c.call = newCall(c.opts.Now)
	c.timers = timers.New(timers.Options{
		Rate: c.opts.TimerRate, MinScheduleInterval: c.opts.MinScheduleInterval, Observer: c.opts.TimerObserver, Spans: c.opts.TimerSpans,
		Types: c, Logger: c.opts.Logger,
	}, parts{c})
	c.intake = newDeliveryIntake(parts{c})
	c.residents = newResidents(&c.base, c)
	c.snapshots = newSnapshots(&c.base)
	c.faulted = newFaultSet(func(e *entity) {
		if e.clearFaults(); e.phase == cold && e.waiting.Len() == 0 {
			c.residents.forget(e) // no other reason is left to keep the entity
		}
	})
	c.decider = decider{base: &c.base, exec: c, timers: c.timers, types: c.residents.types, refusals: NewRate(refusalLines)}
	c.mayLeave = c.opts.LeaveSlice
	c.alwaysOn = newAlwaysOnStarter(alwaysOnOptions{
		Rate: c.opts.AlwaysOnRate, Types: c.opts.Activations, Listed: c.opts.Existing != nil, Logger: c.opts.Logger,
	}, parts{c})
	return c
}

// IsSuspended reports whether a type is suspended.
func (c *core) IsSuspended(entityType string) bool { return c.opts.Settings.IsSuspended(entityType) }

// submit admits requests in order.
func (c *core) submit(now time.Time, reqs []*request.Request) {
	c.now = now
	c.timers.CountRequests(len(reqs))
	for _, r := range reqs {
		c.admit(r)
	}
}

func (c *core) admit(r *request.Request) {
	s := c.shards[r.Shard]
	if s == nil || s.state != leading {
		var term sharding.Term
		if s != nil {
			term = s.term
		}
		c.finish(r, request.Result{Err: &sharding.NotLeaderError{Shard: r.Shard, Term: term}})
		return
	}
	if r.Kind == request.Deliver {
		c.enqueueDelivery(s, r)
		return
	}
	if r.Kind <= request.StaleQuery {
		c.intake.NoteRequest()
	}
	internal := r.Kind == request.Acknowledge || r.Kind == request.Fence // the request of no caller
	if !internal && !s.callers.allows(r.Principal, c.opts.ShardInFlight, c.now.UnixNano()) || s.undecided >= c.opts.ShardInFlight {
		c.finish(r, request.Result{Err: request.ErrBusy})
		return
	}
	s.undecided++
	if !internal {
		s.callers.add(r)
	}
	c.owed++
	if !s.deferIfFull(r) {
		c.dispatch(s, r)
	}
}

// dispatch puts a request into its entity's queue.
func (c *core) dispatch(s *shard, r *request.Request) {
	if r.Kind == request.Deliver {
		c.countHops(r.Delivery)
	}
	if r.Exec.Since.IsZero() {
		r.Exec.Since = c.now
	}
	switch {
	case r.Kind == request.Acknowledge:
		s.acknowledge(r)
		return
	case r.Kind == request.Deliver && r.Delivery.Refuse != nil:
		s.askRefuse(r)
		return
	case r.Kind == request.Discard:
		s.discard(r)
		return
	case r.Kind == request.SendAgain:
		s.sendAgain(r)
		return
	case r.Kind == request.Fence:
		s.fence(r)
		return
	}
	e := c.residents.entity(s, r.Entity)
	if r.Kind == request.Inspect {
		c.inspect(e, r)
		return
	}
	if r.Kind == request.Clear {
		e.clearFaults()
		c.inspect(e, r)
		return
	}
	if r.Kind == request.Passivate && e.phase == cold && e.waiting.Len() == 0 && !c.isAlwaysOn(r.Entity.Type) {
		s.settle(r, request.Result{})
		c.revive(e)
		return
	}
	if e.waiting.Len() >= c.opts.EntityInFlight {
		s.settle(r, request.Result{Err: request.ErrBusy})
		return
	}
	if e.phase == cold && refusesClient(c.typeOf(r.Entity), r) {
		s.settle(r, request.Result{Err: request.ErrInternalCommand}) // decided without loading the entity
		c.revive(e)
		return
	}
	e.waiting.Push(r)
	if e.phase == inMemory {
		c.enqueue(e)
		return
	}
	c.unloaded[e] = struct{}{}
	if s.log.RequestReadRound(r, c.rounds+1) {
		s.touch()
	}
	c.revive(e)
}

// runTurns gives turns to the entities that have work. Guests are called only
// from here, at the bottom of the stack, so that the executor can continue
// without a call that runs long.
func (c *core) runTurns() {
	c.leaveShards()
	c.mayLeave = c.opts.LeaveSlice
	c.timers.Admit(c.owed, c.opts.Journal.Busy)
	c.intake.Admit()
	c.alwaysOn.Start()
	for n := 0; c.ready.Len() > 0; n++ {
		if n == turnEntities {
			c.endTurn()
			n = 0
		}
		e := c.ready.Pop()
		e.queued = false
		c.turn(e)
	}
}

// turn serves an entity's queue until it is empty, the entity leaves memory, or
// other entities have waited long enough. If requests of other callers wait,
// turn ends after one request.
func (c *core) turn(e *entity) {
	for n := 0; e.shard.state == leading; n++ {
		switch {
		case e.inst != nil && e.inst.IsBusy():
			if !e.blocked {
				e.blocked = true
				e.inst.Block(e)
			}
			return
		case e.inquiry() != nil:
			return
		case e.phase == loading && len(e.load().chunks) > 0:
			c.applyChunk(e)
		case e.isCheckDue():
			c.takeState(e)
		case e.phase == inMemory && c.snapshots.isDue(e) && !c.isOutdated(e):
			c.takeSnapshot(e)
		case e.phase == inMemory && e.waiting.Len() > 0:
			if n >= turnRequests || n > 0 && c.ready.Others(e.firstCaller(), e.id.Type) {
				c.enqueue(e)
				return
			}
			if !c.serve(e) {
				return
			}
		default:
			return
		}
	}
}

// revive starts a load of a cold entity if requests wait for it. Otherwise it
// forgets the entity.
func (c *core) revive(e *entity) {
	if e.phase != cold && e.phase != draining {
		return
	}
	if e.last > e.shard.log.DecidedTo() {
		if e.phase != draining {
			e.phase = draining
			e.shard.draining = append(e.shard.draining, e)
		}
		return
	}
	e.phase = cold
	if e.waiting.Len() == 0 {
		if c.mustReturn(e) {
			c.startAgain(e)
		}
		if e.faults() == 0 {
			c.residents.forget(e)
		}
		return
	}
	if c.isQuarantined(e) && !e.turnAway() {
		c.revive(e)
		return
	}
	c.startLoad(e)
}

// forget removes an entity from its shard.
func (m *residents) forget(e *entity) {
	if e.shard.entities.Remove(e) {
		m.known--
	}
}

func (c *core) failWaiting(e *entity, err error) {
	for r := e.waiting.Pop(); r != nil; r = e.waiting.Pop() {
		e.shard.settle(r, request.Result{Err: err})
	}
	c.revive(e)
}

// serve decides the first request in the queue of an entity in memory. It
// returns false if the queue must wait for the shard.
func (c *core) serve(e *entity) bool {
	if e.isRowOnly() {
		return c.serveRowOnly(e)
	}
	c.residents.noteUse(e)
	t := c.typeOf(e.id)
	if !t.same(e.typ) {
		// The entity has another module now, or none that this node can serve. Its
		// state is rebuilt from its history.
		c.unloaded[e] = struct{}{}
		c.reload(e)
		return true
	}
	if e.typ = t; t != nil && t.Revision > e.shard.revisions.Now {
		e.awaitActivation(t.Revision)
		return false
	}
	if e.stall() || e.waitIfPaused() {
		return false
	}
	if e.waiting.First().Kind == request.Passivate && !e.typ.Singleton && c.mustCheckFirst(e, false) {
		return true
	}
	r := e.waiting.Pop()
	switch {
	case r.Kind == request.Passivate && e.typ.Singleton:
		e.shard.settle(r, request.Result{Err: errSingletonStays})
	case r.Kind == request.Passivate:
		c.passivate(e, r)
	case t == nil:
		e.shard.settle(r, request.Result{Err: request.ErrNotServed})
	case r.Kind == request.Start:
		c.finishStart(e, r)
	case t.Transient && c.decider.decideTransient(e, r):
	case r.Kind == request.Command:
		c.decider.command(e, r)
	case r.Kind == request.Deliver:
		c.decider.deliver(e, r)
		return e.inquiry() == nil
	case r.Kind == request.Redeliver:
		c.decider.redeliver(e, r)
	case r.Kind == request.SkipTimer:
		c.decider.skipTimer(e, r)
	case r.Kind == request.Delete:
		c.decider.remove(e, r)
	default:
		c.decider.query(e, r)
	}
	return true
}

func (c *core) inspect(e *entity, r *request.Request) {
	info := &request.Info{Sequence: e.sequence, Faults: e.faults(), LastErr: e.lastError(), Resident: e.phase == inMemory, Status: "passive"}
	switch {
	case e.phase == inMemory:
		info.Status, info.Module = "active", e.typ.Digest
	case c.isQuarantined(e):
		info.Status, info.QuarantinedUntil = "quarantined", e.extra.faults.QuarantinedUntil()
	case e.phase != cold:
		info.Status = "loading"
	}
	e.shard.settle(r, request.Result{Info: info})
	c.revive(e)
}

// settle completes a request that its shard counts as undecided.
func (s *shard) settle(r *request.Request, res request.Result) {
	if r.Kind == request.Deliver {
		s.intake.Release(r.Delivery)
	}
	s.undecided--
	s.callers.release(r)
	s.owed--
	s.finish(r, res)
}

// nextCall returns the guestCall to fill in for the next call.
func (c *core) nextCall() *guestCall { return c.call }

// reload evicts an entity, so that its next request rebuilds its state from the
// log.
func (c *core) reload(e *entity) {
	c.residents.evict(e)
	c.revive(e)
}
