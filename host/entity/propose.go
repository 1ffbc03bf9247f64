package entity

import (
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// proofEvery is the least time between two proofs of a shard.
const proofEvery = 10 * time.Second

// prove puts the digest of the shard's rows into its log, for the other
// replicas to compare with theirs. One that is lost is not missed.
func (s *shard) prove(p *journal.Proof) {
	if p == nil || s.state != leading || s.opts.Level() < sharding.VersionConsistencyChecks {
		return
	}
	if !s.provenAt.IsZero() && s.now.Sub(s.provenAt) < proofEvery {
		return
	}
	s.provenAt = s.now
	s.proposeBatch() // entries are numbered in the order in which they are proposed
	s.propose(proposal{}, journal.AppendProofEntry(nil, s.term, s.log.Next(), p))
}

// work has what earlier entries of the shard have left done, where no entry is
// under way that does a slice of it: by one that does nothing else. Its outcome
// leads to the next.
func (s *shard) work(owing bool) {
	if owing && s.state == leading && s.log.Idle() && s.opts.Level() >= sharding.VersionPacedWork {
		s.propose(proposal{}, journal.AppendPacedHeader(nil, s.opts.Level(), journal.EntryWork, s.term, s.log.Next()))
	}
}

// A shard's commands run under bindings of types to modules that only move
// forward, whoever leads it: before the first command under a newer revision
// its leader commits the revision to the shard's log, and the executor of a new
// leader waits until its own node serves that revision.

// awaitBinding makes an entity wait until the shard's log has the revision
// under which its next request would run.
func (e *entity) awaitBinding(revision uint64) {
	e.shard.revisions.Await(e, revision)
	e.awaitsBinding = true
	e.shard.away[e] = struct{}{}
	e.shard.touch()
}

// proposeBindings puts the revision that is waited for into the log. One that
// is dropped is proposed again when deadlines are looked at next.
func (s *shard) proposeBindings() {
	if s.state != leading {
		return
	}
	if wanted, ask := s.revisions.Ask(); ask {
		s.propose(proposal{Revision: wanted}, journal.AppendBindingsEntry(nil, s.term, s.log.Next(), wanted))
	}
}

// bound takes the outcome of a proposal with a revision.
func (s *shard) bound(revision uint64, err error) {
	waited, fences := s.revisions.Done(revision, err)
	for _, e := range waited {
		e.awaitsBinding = false
		s.enqueue(e)
	}
	for _, r := range fences {
		s.fence(r)
	}
}

// fence answers once the log has the request's revision, by which this executor and
// every later one goes, and what was written before it is applied.
func (s *shard) fence(r *request.Request) {
	switch {
	case s.opts.Bindings() < r.Revision:
		s.settle(r, request.Result{Err: request.ErrModuleNotLoaded})
	case s.revisions.Now < r.Revision:
		s.revisions.Fence(r)
		s.touch()
	default:
		s.proposeBatch()
		s.awaitCommit(r, s.log.Next()-1, true)
	}
}

// bindingsMoved lets the executor lead what had to wait for this node's bindings.
func (c *core) bindingsMoved() {
	c.starter.Learn()
	for _, s := range c.shards {
		c.activate(s)
		for _, e := range s.revisions.Unmuted() {
			e.stalled = false
			c.enqueue(e)
		}
	}
}

// stall makes a resident entity wait whose first request would leave a record,
// while its shard has as much proposed as it may: requests that were admitted
// before add nothing to that. What only reads goes on.
func (e *entity) stall() bool {
	s := e.shard
	if s.log.Bytes() < e.shard.opts.ProposedBytes {
		return false
	}
	if !e.waiting.First().Records() {
		return false
	}
	e.stalled = true
	s.stalled = append(s.stalled, e)
	e.shard.away[e] = struct{}{} // its requests have deadlines
	return true
}

// mute makes a resident entity wait whose first request would leave a record,
// while its module is to write none.
func (e *entity) mute() bool {
	if e.typ == nil || !e.typ.Muted || !e.waiting.First().Records() {
		return false
	}
	e.stalled = true
	e.shard.revisions.Mute(e)
	e.shard.away[e] = struct{}{}
	return true
}

// unstall returns the entities that waited.
func (s *shard) unstall() []*entity {
	all := s.stalled
	for _, e := range all {
		e.stalled = false
	}
	s.stalled = nil
	return all
}

// expire answers requests whose deadline has passed and takes up what was held
// back. What is proposed keeps its course; only the wait for it ends.
func (c *core) expire() {
	for _, s := range c.shards {
		if s.undecided == 0 {
			continue
		}
		if s.revisions.Waits() {
			s.touch()
		}
		s.log.Expire(c.pastDeadline, func(r *request.Request) { s.settle(r, request.Result{Err: request.ErrDeadline}) })
		s.deferred.Sift(s.expires)
		c.resume(s)
	}
	c.intake.Expire()
	for e := range c.away {
		if e.expireWaiting(); e.waiting.Len() == 0 {
			delete(c.away, e)
			c.revive(e)
		}
	}
}

// expires answers a request whose deadline has passed.
func (s *shard) expires(r *request.Request) bool {
	if !s.pastDeadline(r) {
		return false
	}
	s.settle(r, request.Result{Err: request.ErrDeadline})
	return true
}

func (e *entity) expireWaiting() {
	for range e.waiting.Len() {
		if r := e.waiting.Pop(); e.shard.pastDeadline(r) {
			e.shard.settle(r, request.Result{Err: request.ErrDeadline})
		} else {
			e.waiting.Push(r)
		}
	}
}

// proposeBatch closes the open batch and hands it to the log.
func (s *shard) proposeBatch() {
	if p, data, ok := s.log.CloseBatch(); ok {
		s.stats.ProposedRecords += uint64(len(p.Commands))
		s.propose(p, data)
	}
}

// propose hands an entry, which has the number s.log.Next(), to the log.
func (s *shard) propose(p proposal, data []byte) {
	s.stats.Proposals++
	p.At = s.now.UnixNano()
	n := s.log.Add(p, len(data))
	if err := s.opts.Journal.Propose(s.id, s.term, n, data); err != nil {
		s.lane.proposalDone(s, s.term, n, notApplied(err))
	}
}

// proposalDone takes the outcome of a proposal: nil committed it, anything else
// says that it never will be.
func (c *core) proposalDone(s *shard, fence sharding.Term, number uint64, err error) {
	if s.state != leading || fence != s.term {
		return
	}
	p, ok := s.log.Done(number)
	if !ok {
		return
	}
	c.timers.Committed(c.now.UnixNano() - p.At)
	if err != nil {
		// The states in memory are ahead of the truth.
		for _, x := range p.Commands {
			x.Entity.exists, x.Entity.stopped = true, false // as far as is known
			if x.Entity.phase == inMemory {
				c.residents.evict(x.Entity)
			}
		}
	}
	if p.Revision > 0 {
		s.bound(p.Revision, err)
	}
	s.opsDone(&p, c.index, err)
	if p.Due != 0 && err == nil {
		c.timers.Wake(s.timers, p.Due)
	}
	s.settleCommands(p.Commands, err)
	for _, x := range p.Commands {
		if x.Entity.phase == cold {
			c.revive(x.Entity)
		} else if x.Entity.standsNow(number) {
			c.enqueue(x.Entity)
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
	if err != nil {
		c.decideAgain(s, &p)
	}
	s.release()
	c.resume(s)
}

// awaitCommit answers a request once everything that its outcome saw is
// committed and, where reads says so, leadership is confirmed by a read round
// asked from now on.
func (s *shard) awaitCommit(r *request.Request, gate uint64, reads bool) {
	if s.log.Await(r, gate, reads) {
		s.settle(r, r.Result)
	} else if s.log.Asks() {
		s.touch()
	}
}

// release answers what gates and rounds no longer keep.
func (s *shard) release() {
	s.log.Release(func(r *request.Request) { s.settle(r, r.Result) })
}

// decideAgain takes up what may have seen a proposal that was lost.
func (c *core) decideAgain(s *shard, lost *proposal) {
	of := make(map[sharding.EntityID]struct{}, len(lost.Commands))
	for _, x := range lost.Commands {
		of[x.Entity.id] = struct{}{}
	}
	for _, r := range s.log.TakeLost(lost.Number, of) {
		r.Result = request.Result{}
		r.Lane = request.LaneState{}
		r.Again = true // its caller may have sent it again since
		c.dispatch(s, r)
	}
}

// askReads starts one read round for everything that came since the last.
func (s *shard) askReads() {
	if !s.log.Asks() {
		return
	}
	s.rounds++
	s.log.Asked(s.rounds)
	if err := s.opts.Journal.ReadIndex(s.id, s.rounds); err != nil {
		s.readFailed(s.rounds)
	}
}

func (s *shard) readConfirmed(round uint64) {
	if s.state == leading && s.log.Confirm(round) {
		s.release()
	}
}

// readFailed answers the reads of a round that could not be confirmed: they
// are safe to send again.
func (s *shard) readFailed(round uint64) {
	if s.state == leading {
		s.log.Fail(round, func(r *request.Request) { s.settle(r, request.Result{Err: notLeader(s)}) })
	}
}

// resume takes up deferred requests while there is room.
func (c *core) resume(s *shard) {
	if len(s.stalled) > 0 && s.log.Bytes() < c.opts.ProposedBytes {
		for _, e := range s.unstall() {
			c.enqueue(e)
		}
	}
	for s.deferred.Len() > 0 && !s.full() {
		c.dispatch(s, s.deferred.Pop())
	}
}
