package entity

import (
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// leadership of a shard as its lane sees it:
//
//	  elected, the no-op of that term applied, and no binding
//	      of this node is older than the shard's revision
//	following ----------------------------------------------> leading
//	    ^                                                        |
//	    +--------------------------------------------------------+
//	                  stepped down, or a newer term
type leadership uint8

const (
	following leadership = iota
	leading
)

// shard is a lane's view of one shard and what it has under way there.
type shard struct {
	id      sharding.ShardID
	state   leadership
	term    sharding.Term // in which the lane leads or last led
	elected sharding.Term // this node was elected in it
	noop    sharding.Term // highest term whose no-op has been applied here
	clock   int64         // highest recordedAt seen: the log clock never runs back
	led     leads         // since when, where leading
	binding
	timers clockwork
	memory remembering
	box    postbox
	mail   mail // of what is open and proposed
	dirty  bool // in core.dirty

	entities directory
	folds    folds
	parked   parkedSet
	open     batch
	next     uint64     // number of the open batch
	decided  uint64     // every proposal up to this one is applied or lost
	proposed []proposal // proposed and undecided, in order
	bytes    int        // of proposed

	draining  []*entity  // wait for what they have in flight
	gated     []*Request // outcomes known, held until gate and round allow
	asks      bool       // some of gated need a read round that is not asked for
	confirmed uint64     // highest confirmed read round
	unread    uint64     // highest read round that could not be confirmed
	deferred  []*Request // requests held back while the shard is full
	undecided int        // requests not yet completed
}

// binding is under which revision of the bindings the shard's commands run.
type binding struct {
	revision uint64    // in the shard's log; it never falls
	wanted   uint64    // by the entities held
	asked    bool      // a proposal with a revision is under way
	held     []*entity // wait for it
}

// batch is an entry being filled.
type batch struct {
	data    []byte
	due     int64 // of the earliest timer that it sets; 0 for none
	mail    mail
	pending []pending
}

// proposal is an entry on its way through the log: pending commands, or a
// revision.
type proposal struct {
	number   uint64
	at       int64 // when it was made
	bytes    int
	pending  []pending
	revision uint64
	due      int64 // as of the batch
	mail     mail
	post     []*Request // those that asked for the steps of an entry of steps
}

// pending is a command whose record is proposed. req is nil once its caller
// has stopped waiting.
type pending struct {
	entity *entity
	req    *Request
}

// full reports that deciding more would only pile up behind the log.
func (s *shard) full(c *core) bool {
	return s.bytes >= c.opts.ProposedBytes || c.opts.Journal.Busy()
}

func (c *core) shard(id sharding.ShardID) *shard {
	s := c.shards[id]
	if s == nil {
		s = &shard{id: id, next: 1}
		c.shards[id] = s
	}
	return s
}

func (c *core) touch(s *shard) {
	if !s.dirty {
		s.dirty = true
		c.dirty = append(c.dirty, s)
	}
}

// logNow is the shard's log clock for a decision made now.
func (c *core) logNow(s *shard) int64 {
	return max(c.now.UnixNano(), s.clock)
}

// leaderChanged notes an election. The lane leads only after the no-op of the
// new term has been applied, for only then is everything that earlier leaders
// acknowledged part of the history it loads.
func (c *core) leaderChanged(id sharding.ShardID, term sharding.Term, self bool) {
	s := c.shard(id)
	if term < s.elected || term < s.term {
		return
	}
	if s.state == leading && (!self || term != s.term) {
		c.stepDown(s)
	}
	if self {
		s.elected = term
		c.activate(s)
	}
}

func (c *core) termStarted(id sharding.ShardID, term sharding.Term, clock int64, revision uint64) {
	s := c.shard(id)
	s.noop = max(s.noop, term)
	s.clock = max(s.clock, clock)
	s.revision = max(s.revision, revision)
	c.activate(s)
}

func (c *core) activate(s *shard) {
	if s.state == following && s.elected > s.term && s.elected == s.noop && c.opts.Bindings() >= s.revision {
		s.state, s.term = leading, s.elected
		s.next, s.decided = 1, 0
		s.led = leads{c.now, s.clock}
		c.wake(s, 1)
		c.recall(s)
	}
}

// stepDown fails what is under way, drops the shard's entities and gives back
// the instances that are empty then. What was proposed may yet be committed by
// the next leader: its outcome is unknown. Everything else is definite.
func (c *core) stepDown(s *shard) {
	s.state = following
	lost := notLeader(s)
	proposed, open, gated, deferred := s.proposed, s.open, s.gated, s.deferred
	s.proposed, s.open, s.gated, s.deferred, s.bytes, s.asks = nil, batch{}, nil, nil, 0, false
	s.decided, s.next, s.draining = 0, 1, nil
	box := s.box
	s.box, s.mail = postbox{}, mail{}
	s.unhold()
	c.dropTimers(s)
	s.memory = remembering{listed: s.memory.listed}
	for _, p := range proposed {
		c.settlePending(s, p.pending, ErrOutcomeUnknown)
		for _, r := range p.post {
			c.settle(s, r, Result{Err: ErrOutcomeUnknown})
		}
	}
	c.settlePending(s, open.pending, lost)
	c.emptyBox(s, box, lost)
	for _, r := range gated {
		err := lost
		if r.Kind == Command && r.Result.Duplicate {
			err = ErrOutcomeUnknown
		}
		c.settle(s, r, Result{Err: err})
	}
	for _, r := range deferred {
		c.settle(s, r, Result{Err: lost})
	}
	c.unfoldShard(s)
	entities := s.entities.all()
	s.entities = directory{}
	c.known -= len(entities)
	for _, e := range entities {
		waiting := e.waiting
		e.waiting, e.last = queue{}, 0
		c.evict(e)
		for r := waiting.pop(); r != nil; r = waiting.pop() {
			c.settle(s, r, Result{Err: lost})
		}
		delete(c.away, e)
	}
	c.closeEmpty()
}

// notApplied is the definite outcome of commands whose entry the journal
// refused.
func notApplied(why error) error { return fmt.Errorf("%w: %w", ErrNotApplied, why) }

func notLeader(s *shard) error { return &sharding.NotLeaderError{Shard: s.id, Term: s.term} }

// settlePending completes the commands of a proposal, with their own results
// when err is nil.
func (c *core) settlePending(s *shard, ps []pending, err error) {
	for _, p := range ps {
		switch {
		case p.req == nil:
		case err != nil:
			c.settle(s, p.req, Result{Err: err})
		default:
			c.settle(s, p.req, p.req.Result)
		}
	}
}

// propose closes the open batch and hands it to the log.
func (c *core) propose(s *shard) {
	if len(s.open.pending) == 0 {
		return
	}
	b := s.open
	n := s.next
	s.open = batch{}
	s.next++
	c.stats.ProposedRecords += uint64(len(b.pending))
	c.send(s, proposal{number: n, bytes: len(b.data), pending: b.pending, due: b.due, mail: b.mail}, b.data)
}

// send hands an entry to the log.
func (c *core) send(s *shard, p proposal, data []byte) {
	c.stats.Proposals++
	p.at = c.now.UnixNano()
	s.proposed = append(s.proposed, p)
	s.bytes += p.bytes
	if err := c.opts.Journal.Propose(s.id, s.term, p.number, data); err != nil {
		c.decide(s, s.term, p.number, notApplied(err))
	}
}

// decide takes the outcome of a proposal: nil committed it, anything else says
// that it never will be. Outcomes of one shard come in order, but a dropped
// proposal may be told before the ones ahead of it are decided.
func (c *core) decide(s *shard, fence sharding.Term, number uint64, err error) {
	if s.state != leading || fence != s.term {
		return
	}
	i := 0
	for i < len(s.proposed) && s.proposed[i].number != number {
		i++
	}
	if i == len(s.proposed) {
		return
	}
	p := s.proposed[i]
	c.pace.committed(c.now.UnixNano() - p.at)
	s.bytes -= p.bytes
	if i == 0 {
		s.proposed[0] = proposal{}
		s.proposed = s.proposed[1:]
	} else {
		s.proposed = append(s.proposed[:i], s.proposed[i+1:]...)
	}
	s.decided = s.next - 1
	if len(s.proposed) > 0 {
		s.decided = s.proposed[0].number - 1
	}
	if err != nil {
		// The states in memory are ahead of the truth.
		for _, x := range p.pending {
			x.entity.lives, x.entity.asleep = true, false // as far as is known
			if x.entity.phase == resident {
				c.evict(x.entity)
			}
		}
	}
	if p.revision > 0 {
		c.bound(s, p.revision, err)
	}
	c.posted(s, &p, c.index, err)
	if p.due != 0 && err == nil {
		c.wake(s, p.due)
	}
	c.settlePending(s, p.pending, err)
	for _, x := range p.pending {
		if x.entity.phase == cold {
			c.revive(x.entity)
		} else if x.entity.standsNow(number) {
			c.enqueue(x.entity)
		}
	}
	drained := s.draining
	s.draining = nil
	for _, e := range drained {
		if e.phase == draining {
			e.phase = cold
			c.revive(e)
		}
	}
	c.release(s, number, err != nil)
	c.resume(s)
}

// hold keeps an outcome until everything it saw is committed and, where reads
// says so, until leadership is confirmed by a read round asked from now on.
func (c *core) hold(s *shard, r *Request, gate uint64, reads bool) {
	r.gate, r.asks = gate, reads && !s.askedAhead(r)
	if gate <= s.decided && !r.asks && r.round <= s.confirmed {
		c.settle(s, r, r.Result)
		return
	}
	s.gated = append(s.gated, r)
	if r.asks {
		s.asks = true
		c.touch(s)
	}
}

// release completes what gates and rounds no longer hold. When proposal n was
// lost, what saw it is decided again.
func (c *core) release(s *shard, n uint64, lost bool) {
	var again []*Request
	keep := s.gated[:0]
	for _, r := range s.gated {
		switch {
		case lost && r.gate == n:
			again = append(again, r)
		case r.gate <= s.decided && !r.asks && r.round <= s.confirmed:
			c.settle(s, r, r.Result)
		default:
			keep = append(keep, r)
		}
	}
	clear(s.gated[len(keep):])
	s.gated = keep
	for _, r := range again {
		r.Result = Result{}
		r.run = run{}
		r.Again = true // its caller may have sent it again since
		c.dispatch(s, r)
	}
}

// askReads starts one read round for everything that came since the last.
func (c *core) askReads(s *shard) {
	if !s.asks {
		return
	}
	s.asks = false
	c.rounds++
	round := c.rounds
	for _, r := range s.gated {
		if r.asks {
			r.asks, r.round = false, round
		}
	}
	if err := c.opts.Journal.ReadIndex(s.id, round); err != nil {
		c.readFailed(s.id, round)
	}
}

func (c *core) readConfirmed(id sharding.ShardID, round uint64) {
	s := c.shards[id]
	if s == nil || s.state != leading || round <= s.confirmed {
		return
	}
	s.confirmed = round
	c.release(s, 0, false)
}

// readFailed answers the reads of a round that could not be confirmed: they
// are safe to send again.
func (c *core) readFailed(id sharding.ShardID, round uint64) {
	s := c.shards[id]
	if s == nil || s.state != leading {
		return
	}
	s.unread = max(s.unread, round)
	keep := s.gated[:0]
	for _, r := range s.gated {
		if s.confirmed < r.round && r.round <= round {
			c.settle(s, r, Result{Err: notLeader(s)})
		} else {
			keep = append(keep, r)
		}
	}
	clear(s.gated[len(keep):])
	s.gated = keep
}

// resume takes up deferred requests while there is room.
func (c *core) resume(s *shard) {
	for len(s.deferred) > 0 && !s.full(c) {
		r := s.deferred[0]
		s.deferred[0] = nil
		s.deferred = s.deferred[1:]
		c.dispatch(s, r)
	}
	if len(s.deferred) == 0 {
		s.deferred = nil
	}
}

// endTurn proposes what was decided and asks for the reads of this turn.
func (c *core) endTurn() {
	c.askTimers()
	for len(c.dirty) > 0 {
		dirty := c.dirty
		c.dirty = nil
		for i, s := range dirty {
			dirty[i] = nil
			s.dirty = false
			if s.state != leading {
				continue
			}
			c.askReads(s)
			c.propose(s)
			c.proposePost(s)
			c.proposeBindings(s)
		}
		if c.dirty == nil {
			c.dirty = dirty[:0]
			break
		}
	}
}
