package entity

import (
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// leadership is the leadership of a shard as its executor sees it:
//
//	  elected, the no-op of that term applied, no activation on
//	      this node older than the shard's revision, and all
//	      entities of the previous leadership have left memory
//	following ----------------------------------------------> leading
//	    ^                                                        |
//	    +--------------------------------------------------------+
//	                  stepped down, or a newer term
type leadership uint8

const (
	following leadership = iota
	leading
)

// clockMost is how far an executor's wall clock may exceed the median of the
// nodes' clocks.
const clockMost = 5 * time.Second

// shard is an executor's view of one shard, with its work in progress.
type shard struct {
	*base
	exec    proposer
	id      sharding.ShardID
	state   leadership
	term    sharding.Term // term in which the executor leads, or led last
	elected sharding.Term // last term in which this node was elected
	noop    sharding.Term // highest term whose no-op has been applied on this node
	reopen  uint64        // number of the first proposal after a reopening in this term; 0 if there was none
	owes    bool          // paced work was left when the term began
	clock   int64         // highest recordedAt seen; the log clock never decreases
	tenure
	revisions activationRevisions[*entity]
	dirty     bool // the shard is in core.dirty

	entities   resident.Directory[*entity]
	hibernated resident.Table
	leaving    leaving // entities of the last leadership that are still in memory
	quarantine quarantineQueue[*entity]
	log        shardLog[*entity]

	draining  []*entity                   // cold entities that wait for their proposals
	refusals  map[*inquiry]struct{}       // rejections whose message number is being read
	deferred  fairQueue[*request.Request] // requests that wait while the shard is full, by caller
	stalled   []*entity                   // entities whose requests wait while the shard is full
	undecided int                         // unanswered requests
	callers   callerShares                // unanswered requests by caller

	checksumAt time.Time // time of the last replica checksum
}

// proposer handles the outcome of a proposal that the log rejected immediately.
type proposer interface {
	proposalDone(s *shard, fence sharding.Term, number uint64, err error)
}

// tenure is a shard's state while the executor leads it.
type tenure struct {
	window.Lead // when the leadership began
	timers      *timers.Shard
	starts      *alwaysOnShard
}

// proposal is a proposal of a shard with the entities of its records.
type proposal = openProposal[*entity]

// isFull reports whether further proposals would only wait in the log's queue.
func (s *shard) isFull() bool {
	return s.log.Bytes() >= s.opts.ProposedBytes || s.opts.Journal.Busy()
}

// deferIfFull queues a request if the shard is full or other requests are deferred.
func (s *shard) deferIfFull(r *request.Request) bool {
	if s.deferred.Len() == 0 && !s.isFull() {
		return false
	}
	s.deferred.Push(r.Principal, r.Entity.Type, r)
	return true
}

func (c *core) shard(id sharding.ShardID) *shard {
	s := c.shards[id]
	if s == nil {
		s = &shard{base: &c.base, exec: c, id: id, deferred: fairQueue[*request.Request]{Salt: c.salt}, callers: callerShares{salt: c.salt}}
		s.log.Begin(1)
		c.shards[id] = s
	}
	return s
}

func (s *shard) touch() {
	if !s.dirty {
		s.dirty = true
		s.base.dirty = append(s.base.dirty, s)
	}
}

// logNow returns the shard's log clock for a decision made now.
func (s *shard) logNow() int64 {
	return max(s.wallNow(), s.clock)
}

// leaderChanged notes an election. The executor leads only after the no-op of
// the new term is applied, because only then does the history that it loads
// contain everything that earlier leaders acknowledged.
func (c *core) leaderChanged(id sharding.ShardID, term sharding.Term, self bool) {
	s := c.shard(id)
	if term < s.elected || term < s.term {
		return
	}
	if s.state == leading && (!self || term != s.term) {
		c.stepDown(s)
	}
	if self {
		if term > s.elected {
			s.reopen, s.owes = 0, false
		}
		s.elected = term
		c.activate(s)
	}
}

func (c *core) termStarted(id sharding.ShardID, term sharding.Term, clock int64, revision uint64, owes bool) {
	s := c.shard(id)
	s.noop, s.owes = max(s.noop, term), owes
	s.clock = max(s.clock, clock)
	s.revisions.Now = max(s.revisions.Now, revision)
	c.activate(s)
}

func (c *core) activate(s *shard) {
	if s.state == following && s.elected > s.term && s.elected == s.noop && c.opts.Activations.ReachedRevision() >= s.revisions.Now && !slices.Contains(c.leaving, s) {
		s.state, s.term = leading, s.elected
		s.log.Begin(max(s.reopen, 1))
		s.Lead = window.Lead{At: c.now, Clock: s.clock}
		s.timers = c.timers.Lead(s.id)
		s.starts = c.alwaysOn.Lead(s.id)
		s.proposeWork(s.owes)
	}
}

// stepDown answers all work in progress with an error. It evicts the entities
// that have work in progress at once, and the others in slices. The next leader
// may still commit the proposals, so their outcome is unknown. All other errors
// are definite.
func (c *core) stepDown(s *shard) {
	s.state = following
	now, later := c.split(s)
	lost := notLeader(s)
	was, deferred, refusals := s.log.Abandon(), s.deferred, s.refusals
	s.deferred, s.refusals, s.draining = fairQueue[*request.Request]{Salt: s.salt}, nil, nil
	_, fences := s.revisions.Drop()
	for _, r := range fences {
		s.settle(r, request.Result{Err: lost})
	}
	if s.timers != nil {
		c.timers.Drop(s.timers)
		s.timers = nil
	}
	if s.starts != nil {
		c.alwaysOn.Drop(s.starts)
		s.starts = nil
	}
	s.unstall()
	for _, e := range s.revisions.TakePaused() {
		e.stalled = false
	}
	c.intake.Drop(s.id, lost)
	for _, p := range was.Proposed {
		s.settleCommands(p.Commands, request.ErrOutcomeUnknown)
		for _, r := range p.Ops {
			s.settle(r, request.Result{Err: request.ErrOutcomeUnknown})
		}
	}
	s.settleCommands(was.Open, lost)
	for _, r := range was.OpenOps {
		s.settle(r, request.Result{Err: lost})
	}
	for q := range refusals {
		s.settle(q.req, request.Result{Err: lost})
	}
	for _, r := range was.Awaiting {
		err := lost
		if r.Kind == request.Command && r.Result.Duplicate {
			err = request.ErrOutcomeUnknown
		}
		s.settle(r, request.Result{Err: err})
	}
	for deferred.Len() > 0 {
		s.settle(deferred.Pop(), request.Result{Err: lost})
	}
	for _, e := range now {
		waiting := e.waiting
		e.waiting = request.Queue{}
		c.evictFromShard(e)
		for r := waiting.Pop(); r != nil; r = waiting.Pop() {
			s.settle(r, request.Result{Err: lost})
		}
	}
	if s.leaving.entities = append(s.leaving.entities, later...); !slices.Contains(c.leaving, s) {
		c.leaving = append(c.leaving, s)
	}
	c.leaveShards()
}

// notApplied returns the definite error of commands whose entry the journal
// rejected.
func notApplied(why error) error { return fmt.Errorf("%w: %w", request.ErrNotApplied, why) }

func notLeader(s *shard) error { return &sharding.NotLeaderError{Shard: s.id, Term: s.term} }

// settleCommands answers the commands of a proposal: with their results if err
// is nil, and with err otherwise.
func (s *shard) settleCommands(commands []proposedCommand[*entity], err error) {
	for _, x := range commands {
		switch {
		case x.Req == nil:
		case err != nil:
			s.settle(x.Req, request.Result{Err: err})
		default:
			x.Req.Exec.RecordCommit(s.now)
			s.settle(x.Req, x.Req.Result)
		}
	}
}

// endTurn proposes the decisions of the turn and requests its ReadIndex rounds.
func (c *core) endTurn() {
	c.timers.Ask()
	for len(c.dirty) > 0 {
		dirty := c.dirty
		c.dirty = nil
		for i, s := range dirty {
			dirty[i] = nil
			s.dirty = false
			if s.state != leading {
				continue
			}
			s.requestReadRound()
			s.proposeBatch()
			s.proposeOps()
			s.proposeActivations()
		}
		if c.dirty == nil {
			c.dirty = dirty[:0]
			break
		}
	}
}

// reopen restarts the leadership in the same term, because entries from outside
// this executor have changed the shard's state. The numbers of proposals
// continue.
func (c *core) reopen(id sharding.ShardID, clock int64) {
	s := c.shard(id)
	s.clock = max(s.clock, clock)
	if s.state != leading {
		return
	}
	next := s.log.Next()
	c.stepDown(s)
	s.term, s.reopen, s.owes = s.elected-1, next, false
	c.activate(s)
}
