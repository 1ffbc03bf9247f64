package entity

import (
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// checksumEvery is the minimum interval between two replica checksums of a shard.
const checksumEvery = 10 * time.Second

// proposeChecksum proposes the replica checksum of the shard's rows, so that
// other replicas compare it with theirs. If the proposal is lost, it is not
// retried.
func (s *shard) proposeChecksum(p *journal.Proof) {
	if p == nil || s.state != leading || s.opts.ClusterVersion() < sharding.VersionConsistencyChecks {
		return
	}
	if !s.checksumAt.IsZero() && s.now.Sub(s.checksumAt) < checksumEvery {
		return
	}
	s.checksumAt = s.now
	s.proposeBatch() // entries are numbered in the order of their proposal
	s.propose(proposal{}, journal.AppendProofEntry(nil, s.term, s.log.Next(), p))
}

// proposeWork proposes an entry that only makes the replicas do a slice of the
// shard's paced work. It proposes none while another entry is in flight,
// because every entry does a slice. The outcome of the entry leads to the next
// call.
func (s *shard) proposeWork(owing bool) {
	if owing && s.state == leading && s.log.Idle() && s.opts.ClusterVersion() >= sharding.VersionPacedWork {
		s.propose(proposal{}, journal.AppendPacedHeader(nil, s.opts.ClusterVersion(), journal.EntryWork, s.term, s.log.Next()))
	}
}

// The revision of the activations under which a shard's commands run never
// decreases, whichever node leads the shard. Before the first command under a
// newer revision, the leader commits the revision to the shard's log. The
// executor of a new leader waits until its node serves that revision.

// awaitActivation makes an entity wait until the shard's log has the revision that
// its next request needs.
func (e *entity) awaitActivation(revision uint64) {
	e.shard.revisions.Await(e, revision)
	e.awaitsActivation = true
	e.shard.unloaded[e] = struct{}{}
	e.shard.touch()
}

// proposeActivations proposes the revision that entities or requests wait for.
// If the proposal is lost, the next check of deadlines proposes it again.
func (s *shard) proposeActivations() {
	if s.state != leading {
		return
	}
	if wanted, ask := s.revisions.Ask(); ask {
		s.propose(proposal{Revision: wanted}, journal.AppendBindingsEntry(nil, s.term, s.log.Next(), wanted))
	}
}

// finishRevision handles the outcome of a proposed revision.
func (s *shard) finishRevision(revision uint64, err error) {
	waited, fences := s.revisions.Done(revision, err)
	for _, e := range waited {
		e.awaitsActivation = false
		s.enqueue(e)
	}
	for _, r := range fences {
		s.fence(r)
	}
}

// fence answers a request once the log has the request's revision and all
// earlier entries are applied. From then on, this executor and those of later
// leaders use at least that revision.
func (s *shard) fence(r *request.Request) {
	switch {
	case s.opts.Activations.ReachedRevision() < r.Revision:
		s.settle(r, request.Result{Err: request.ErrModuleNotLoaded})
	case s.revisions.Now < r.Revision:
		s.revisions.Fence(r)
		s.touch()
	default:
		s.proposeBatch()
		s.awaitCommit(r, s.log.Next()-1, true)
	}
}

// onActivationsChanged activates shards that waited for this node's activations, and
// wakes entities whose writes were paused.
func (c *core) onActivationsChanged() {
	c.alwaysOn.UpdateTypes()
	for _, s := range c.shards {
		c.activate(s)
		for _, e := range s.revisions.TakePaused() {
			e.stalled = false
			c.enqueue(e)
		}
	}
}

// stall makes an entity wait if its first request would write a record
// although the shard has reached its limit of proposed bytes. Without this
// wait, requests that were admitted earlier could exceed the limit. Reads
// continue.
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
	e.shard.unloaded[e] = struct{}{} // the requests of an entity in unloaded can expire
	return true
}

// waitIfPaused makes an entity wait if its first request would write a record and
// writes of its activation are paused.
func (e *entity) waitIfPaused() bool {
	if e.typ == nil || !e.typ.WritesPaused || !e.waiting.First().Records() {
		return false
	}
	e.stalled = true
	e.shard.revisions.AddPaused(e)
	e.shard.unloaded[e] = struct{}{}
	return true
}

// unstall returns the entities that stall made wait.
func (s *shard) unstall() []*entity {
	all := s.stalled
	for _, e := range all {
		e.stalled = false
	}
	s.stalled = nil
	return all
}

// expire answers requests whose deadline has passed and resumes deferred
// requests. Proposals are not withdrawn; only the wait for them ends.
func (c *core) expire() {
	for _, s := range c.shards {
		if s.undecided == 0 {
			continue
		}
		if s.revisions.HasWaiters() {
			s.touch()
		}
		s.log.Expire(c.isPastDeadline, func(r *request.Request) { s.settle(r, request.Result{Err: request.ErrDeadline}) })
		s.deferred.Sift(s.expireRequest)
		c.resume(s)
	}
	c.intake.Expire()
	for e := range c.unloaded {
		if e.expireWaiting(); e.waiting.Len() == 0 {
			delete(c.unloaded, e)
			c.revive(e)
		}
	}
}

// expireRequest answers a request if its deadline has passed.
func (s *shard) expireRequest(r *request.Request) bool {
	if !s.isPastDeadline(r) {
		return false
	}
	s.settle(r, request.Result{Err: request.ErrDeadline})
	return true
}

func (e *entity) expireWaiting() {
	for range e.waiting.Len() {
		if r := e.waiting.Pop(); e.shard.isPastDeadline(r) {
			e.shard.settle(r, request.Result{Err: request.ErrDeadline})
		} else {
			e.waiting.Push(r)
		}
	}
}

// proposeBatch closes and proposes the open batch.
func (s *shard) proposeBatch() {
	if p, data, ok := s.log.CloseBatch(); ok {
		s.stats.ProposedRecords += uint64(len(p.Commands))
		s.propose(p, data)
	}
}

// propose proposes an entry, which has the number s.log.Next().
func (s *shard) propose(p proposal, data []byte) {
	s.stats.Proposals++
	p.At = s.now.UnixNano()
	n := s.log.Add(p, len(data))
	if err := s.opts.Journal.Propose(s.id, s.term, n, data); err != nil {
		s.exec.proposalDone(s, s.term, n, notApplied(err))
	}
}

// proposalDone handles the outcome of a proposal. If err is nil, the proposal
// is committed; otherwise it never will be.
func (c *core) proposalDone(s *shard, fence sharding.Term, number uint64, err error) {
	if s.state != leading || fence != s.term {
		return
	}
	p, ok := s.log.Done(number)
	if !ok {
		return
	}
	c.timers.NoteCommit(c.now.UnixNano() - p.At)
	if err != nil {
		// The states in memory are ahead of the log.
		for _, x := range p.Commands {
			x.Entity.exists, x.Entity.stopped = true, false // assumed until the entity is loaded again
			if x.Entity.phase == inMemory {
				c.residents.evict(x.Entity)
			}
		}
	}
	if p.Revision > 0 {
		s.finishRevision(p.Revision, err)
	}
	s.finishOps(&p, c.index, err)
	if p.Due != 0 && err == nil {
		c.timers.Wake(s.timers, p.Due)
	}
	s.settleCommands(p.Commands, err)
	for _, x := range p.Commands {
		if x.Entity.phase == cold {
			c.revive(x.Entity)
		} else if x.Entity.awaitedForWindow(number) {
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

// awaitCommit answers a request once everything that its outcome has seen is
// committed and, if reads is set, a ReadIndex round requested from now on has
// confirmed the leadership.
func (s *shard) awaitCommit(r *request.Request, barrier uint64, reads bool) {
	if s.log.Await(r, barrier, reads) {
		s.settle(r, r.Result)
	} else if s.log.NeedsRound() {
		s.touch()
	}
}

// release answers the requests that the commit barriers no longer hold.
func (s *shard) release() {
	s.log.Release(func(r *request.Request) { s.settle(r, r.Result) })
}

// decideAgain dispatches the requests again that may have seen a lost proposal.
func (c *core) decideAgain(s *shard, lost *proposal) {
	of := make(map[sharding.EntityID]struct{}, len(lost.Commands))
	for _, x := range lost.Commands {
		of[x.Entity.id] = struct{}{}
	}
	for _, r := range s.log.TakeLost(lost.Number, of) {
		r.Result = request.Result{}
		r.Exec = request.ExecutorState{}
		r.Again = true // the caller may have retried the command since it was proposed
		c.dispatch(s, r)
	}
}

// requestReadRound requests one ReadIndex round for all reads that have arrived
// since the last round.
func (s *shard) requestReadRound() {
	if !s.log.NeedsRound() {
		return
	}
	s.rounds++
	s.log.AssignRound(s.rounds)
	if err := s.opts.Journal.ReadIndex(s.id, s.rounds); err != nil {
		s.readFailed(s.rounds)
	}
}

func (s *shard) readConfirmed(round uint64) {
	if s.state == leading && s.log.Confirm(round) {
		s.release()
	}
}

// readFailed answers the reads of a failed ReadIndex round. They are safe to
// retry.
func (s *shard) readFailed(round uint64) {
	if s.state == leading {
		s.log.Fail(round, func(r *request.Request) { s.settle(r, request.Result{Err: notLeader(s)}) })
	}
}

// resume continues with stalled entities and deferred requests while there is
// room.
func (c *core) resume(s *shard) {
	if len(s.stalled) > 0 && s.log.Bytes() < c.opts.ProposedBytes {
		for _, e := range s.unstall() {
			c.enqueue(e)
		}
	}
	for s.deferred.Len() > 0 && !s.isFull() {
		c.dispatch(s, s.deferred.Pop())
	}
}
