package entity

import (
	"context"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// phase of an entity in its lane:
//
//	           request, nothing in flight          history applied
//	cold ----------------------------------> loading ------------> resident
//	 ^  \ request, something in flight        ^  |                   |
//	 |   `--> draining --- last decided -----'   | damage, fault     | fault, lost
//	 |                                           v                   | events, evict
//	 +-------------------------------------------+-------------------+
type phase uint8

const (
	cold phase = iota
	draining
	loading
	resident
)

// entity is one entity of the lane. It exists while it is not cold or while
// its faults are remembered.
type entity struct {
	id    sharding.EntityID
	shard *shard
	key   uint32 // of id

	phase   phase
	queued  bool // in core.ready
	blocked bool // in its instance's blocked
	held    bool // in its shard's held
	idling  bool // in its type's idle
	seg     segment
	lives   bool // resident: it has a record, and none after it deleted it
	asleep  bool // it has left, and is not to be started until it is asked for
	costly  bool // its load had much to replay, and there is no snapshot since
	replay  replay

	// resident: the head that the next command sees, ahead of the commit.
	inst     *instance
	handle   uint32
	touched  tick // up to touchEvery late
	typ      *Type
	sequence journal.Sequence
	hash     journal.Hash
	seen     dedupe
	place    links // in the cache
	idler    links // in its type's idle

	// last is the newest proposal that carries a record of this entity.
	last uint64
	// waiting are its undecided requests, in order.
	waiting queue

	rest *rest // nil for most
}

// unload forgets the state and leaves the entity cold.
func (e *entity) unload() {
	if l := e.load(); l != nil {
		l.cancel()
		e.rest.load = nil
	}
	e.phase, e.inst, e.typ, e.seen, e.replay, e.costly = cold, nil, nil, dedupe{}, replay{}, false
	if e.rest != nil {
		e.rest.filter, e.rest.partial, e.rest.mail, e.rest.hollow, e.rest.stands = nil, false, nil, false, standing{}
	}
}

// run is the lane's part of a Request.
type run struct {
	gate  uint64 // the proposal whose commit releases the outcome
	round uint64 // the read round that must confirm; 0 when none is needed
	asks  bool   // needs a read round that is not asked for yet
	fire  *firing
	next  *Request // in its queue
}

// loader starts reading an entity's history; chunks come back to core.loaded.
type loader interface {
	start(*load)
	// scan reads due timers; the scan comes back to core.timersFound.
	scan(*timerScan)
	// living reads the ids of entities; the scan comes back to core.livingFound.
	living(*livingScan)
	// lookUp reads a number; the inquiry comes back to core.answered.
	lookUp(*inquiry)
}

// core is a lane's decisions: a state machine without goroutine, clock or I/O
// of its own. Inputs are requests and events; outputs go to Journal, to the
// loader and to the requests' completers.
type core struct {
	opts      Options
	loader    loader
	runner    runner
	shards    map[sharding.ShardID]*shard
	pools     map[poolKey]*pool
	instances []*instance // oldest first
	numbered  map[uint32]*instance
	opened    uint32 // the number of the last one
	pages     pages  // of folded entities
	residents residents
	types     typeTallies
	salt      uint64               // of the keys of entities
	ready     []*entity            // have a turn to take
	call      *call                // the next visit
	visits    map[*call]struct{}   // under way without the lane
	dirty     []*shard             // have an open batch or unasked reads
	away      map[*entity]struct{} // may have requests waiting
	now       time.Time            // of this turn
	known     int                  // entities of all shards
	owed      int                  // requests of all shards not yet completed
	reminder  reminder             // what is to be started
	pace      pacer                // of timers
	sweepAt   int64                // when idle entities are looked for, unix nanoseconds; 0 for never
	timersAt  int64                // when timers are to be looked after, unix nanoseconds; 0 for never
	rounds    uint64               // read rounds asked by this lane, over all shards
	readOnly  func() bool
	// Modules that failed to make a snapshot, and until when none is asked for.
	noSnapshots map[journal.Digest]time.Time
	early       *Rate // of snapshots that are taken because of a load

	chain   journal.Chain
	scratch []byte
	fuel    uint64 // of the command being decided
	fuelBuf [8]byte
	record  journal.Record
	encoded []byte           // record, until the next command
	refusal *journal.Refusal // of the record being made
	index   uint64           // of the entry whose outcome is taken
	output  abi.Output
	names   map[string]string // event types, so that a record costs no string
	zones   zones
	heat    heat
	stats   Stats
}

// Stats counts what a lane has done since it started.
type Stats struct {
	Commands, Queries, Rejections, Duplicates, Faults, Loads, Events uint64
	RateLimited                                                      uint64 // commands refused by the rate of their type
	Forgotten                                                        uint64 // retries that the windows of their entities do not reach back to
	BadOutputs                                                       uint64 // outputs that are no frames of the contract, or over a limit
	Overruns                                                         uint64 // visits to guests that the lane went on without
	Proposals, ProposedRecords                                       uint64
	Refused                                                          uint64 // sends that were not carried out
	Snapshots, SnapshotLoads                                         uint64 // proposed, and used by loads
	Timers, Remembered                                               uint64 // fired; entities started again
	Passivations, Shed, Recycled                                     uint64 // entities that were idle or asked to, that made room; instances
	Parked                                                           uint64 // times that an entity was parked
	TimersDue                                                        int    // timers that were read as due and have not fired
	Resident                                                         int    // entities in memory
	Entities, Instances                                              int
	GuestBytes                                                       int64
	Folded                                                           int   // of the entities in memory
	FoldedBytes                                                      int64 // of the pages that their records lie on
}

func newCore(opts Options, l loader, r runner) *core {
	return &core{
		opts:   opts.withDefaults(),
		loader: l,
		runner: r,
		call:   &call{},
		visits: make(map[*call]struct{}),
		shards: make(map[sharding.ShardID]*shard),
		pools:  make(map[poolKey]*pool),
		away:   make(map[*entity]struct{}),

		numbered: make(map[uint32]*instance),

		residents: residents{idle: make(map[string]*idle)},
		names:     make(map[string]string),
		zones:     make(zones),

		noSnapshots: make(map[journal.Digest]time.Time),
		early:       NewRate(earlySnapshots),
		readOnly:    func() bool { return false },
	}
}

// load is one reading of an entity's history, in progress.
type load struct {
	entity *entity
	id     sharding.EntityID
	shard  sharding.ShardID
	typ    *Type
	ctx    context.Context
	cancel context.CancelFunc
	below  journal.Sequence // of the entity
	whole  bool             // the same
	begun  bool
	from   journal.Sequence // the snapshot's; 0 from the first event on
	before int64            // recollection.before
	chunks []*loadChunk     // arrived and not applied yet
	credit chan struct{}    // one token per chunk that the lane has taken
}

// submit takes requests in order.
func (c *core) submit(now time.Time, reqs []*Request) {
	c.now = now
	c.pace.asked += len(reqs)
	for _, r := range reqs {
		c.admit(r)
	}
}

func (c *core) admit(r *Request) {
	s := c.shards[r.shard()]
	if s == nil || s.state != leading {
		var term sharding.Term
		if s != nil {
			term = s.term
		}
		c.finish(r, Result{Err: &sharding.NotLeaderError{Shard: r.shard(), Term: term}})
		return
	}
	if s.undecided >= c.opts.ShardInFlight {
		c.finish(r, Result{Err: ErrBusy})
		return
	}
	s.undecided++
	c.owed++
	if len(s.deferred) > 0 || s.full(c) {
		s.deferred = append(s.deferred, r)
		return
	}
	c.dispatch(s, r)
}

// dispatch brings a request to its entity's queue.
func (c *core) dispatch(s *shard, r *Request) {
	switch {
	case r.Kind == Acknowledge:
		c.acknowledge(s, r)
		return
	case r.Kind == Deliver && r.Delivery.Refuse != nil:
		c.askRefuse(s, r)
		return
	case r.Kind == Discard:
		c.discard(s, r)
		return
	case r.Kind == SendAgain:
		c.sendAgain(s, r)
		return
	}
	e := c.entity(s, r.Entity)
	if r.Kind == Inspect {
		c.inspect(e, r)
		return
	}
	if r.Kind == Clear {
		e.cleared()
		c.inspect(e, r)
		return
	}
	if r.Kind == Passivate && e.phase == cold && e.waiting.len == 0 && !c.keeps(r.Entity.Type) {
		c.settle(s, r, Result{})
		c.revive(e)
		return
	}
	if e.waiting.len >= c.opts.EntityInFlight {
		c.settle(s, r, Result{Err: ErrBusy})
		return
	}
	e.waiting.push(r)
	if e.phase == resident {
		c.enqueue(e)
		return
	}
	c.away[e] = struct{}{}
	c.askAhead(s, r)
	c.revive(e)
}

// enqueue lets an entity take its turn with a guest.
func (c *core) enqueue(e *entity) {
	if !e.queued && !e.blocked && !e.held {
		e.queued = true
		c.ready = append(c.ready, e)
	}
}

// pump gives the entities that have work their turns. Guests are visited from
// here only, at the foot of the stack, so that the lane can go on without a
// visit that runs long.
func (c *core) pump() {
	c.admitTimers()
	c.startRemembered()
	for n := 0; len(c.ready) > 0; n++ {
		if n == turnEntities {
			c.endTurn()
			n = 0
		}
		e := c.ready[0]
		c.ready[0] = nil
		if c.ready = c.ready[1:]; len(c.ready) == 0 {
			c.ready = nil
		}
		e.queued = false
		c.turn(e)
	}
}

// turn serves an entity's queue until it is empty, the entity leaves, or
// others have waited long enough.
func (c *core) turn(e *entity) {
	for n := 0; ; n++ {
		switch {
		case e.inst != nil && e.inst.busy:
			if !e.blocked {
				e.blocked = true
				e.inst.blocked = append(e.inst.blocked, e)
			}
			return
		case e.inquiry() != nil:
			return
		case e.phase == loading && len(e.load().chunks) > 0:
			c.applyChunk(e)
		case e.phase == resident && c.wantsSnapshot(e):
			c.takeSnapshot(e)
		case e.phase == resident && e.waiting.len > 0:
			if n >= turnRequests {
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

// revive moves a cold entity on when requests wait for it, or forgets it.
func (c *core) revive(e *entity) {
	if e.phase != cold && e.phase != draining {
		return
	}
	if e.last > e.shard.decided {
		if e.phase != draining {
			e.phase = draining
			e.shard.draining = append(e.shard.draining, e)
		}
		return
	}
	e.phase = cold
	if e.waiting.len == 0 {
		if c.remembers(e) {
			c.startAgain(e)
		}
		if e.faults() == 0 {
			c.forget(e)
		}
		return
	}
	if e.parked(c.now) && !c.turnAway(e) {
		c.revive(e)
		return
	}
	c.startLoad(e)
}

// forget takes an entity out of its shard's.
func (c *core) forget(e *entity) {
	if e.shard.entities.remove(e) {
		c.known--
	}
}

func (c *core) failWaiting(e *entity, err error) {
	for r := e.waiting.pop(); r != nil; r = e.waiting.pop() {
		c.settle(e.shard, r, Result{Err: err})
	}
	c.revive(e)
}

// serve decides the first request of a resident entity's queue. It returns
// false when the queue has to wait for the shard.
func (c *core) serve(e *entity) bool {
	if e.hollow() {
		return c.serveHollow(e)
	}
	c.asked(e)
	t := c.opts.Types.Lookup(e.id.Type)
	if t != nil && t != e.typ {
		// Another module is active now: the state is built again from history.
		c.away[e] = struct{}{}
		c.evict(e)
		c.revive(e)
		return true
	}
	if t != nil && t.Revision > e.shard.revision {
		c.bind(e, t.Revision)
		return false
	}
	r := e.waiting.pop()
	switch {
	case r.Kind == Passivate && e.typ.Singleton:
		c.settle(e.shard, r, Result{Err: errStays})
	case r.Kind == Passivate:
		c.passivate(e, r)
	case t == nil:
		c.settle(e.shard, r, Result{Err: ErrNotServed})
	case r.Kind == start:
		c.started(e, r)
	case t.Transient && c.ofTransient(e, r):
	case r.Kind == Command:
		c.command(e, r)
	case r.Kind == Deliver:
		c.deliver(e, r)
		return e.inquiry() == nil
	case r.Kind == Redeliver:
		c.redeliver(e, r)
	case r.Kind == SkipTimer:
		c.skipTimer(e, r)
	case r.Kind == Delete:
		c.remove(e, r)
	default:
		c.query(e, r)
	}
	return true
}

func (c *core) inspect(e *entity, r *Request) {
	info := &Info{Sequence: e.sequence, Faults: e.faults(), Resident: e.phase == resident, Status: "passive"}
	if e.rest != nil {
		info.LastErr = e.rest.err
	}
	switch {
	case e.phase == resident:
		info.Status, info.Module = "active", e.typ.Digest
	case e.parked(c.now):
		info.Status, info.ParkedUntil = "parked", e.rest.parkedTo
	case e.phase != cold:
		info.Status = "loading"
	}
	c.settle(e.shard, r, Result{Info: info})
	c.revive(e)
}

// settle completes a request that its shard counts as undecided.
func (c *core) settle(s *shard, r *Request, res Result) {
	s.undecided--
	c.owed--
	c.finish(r, res)
}

func (c *core) finish(r *Request, res Result) {
	r.run = run{}
	r.Result = res
	r.Done.Complete(r)
}
