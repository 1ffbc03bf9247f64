package entity

import (
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shardLog tracks the open and proposed entries of one shard. E is the
// executor's entity type. Proposals are numbered in the order in which they are
// made. An open entry gets the number Next.
//
//	open batch, open ops --closed--> proposed --done--> decided
//
// Outcomes that have seen undecided proposals wait in commitBarriers.
type shardLog[E any] struct {
	commitBarriers

	next     uint64            // number of the next proposal
	decided  uint64            // every proposal up to this one is applied or lost
	proposed []openProposal[E] // proposals without an outcome, in order
	bytes    int               // size of the entries in proposed

	batch    batch[E]
	ops      opsBatch
	messages messageTotals // sum over open and proposed entries
}

// proposedCommand is a command whose record is open or proposed. Req is nil
// once its caller has stopped waiting.
type proposedCommand[E any] struct {
	Entity E
	Req    *request.Request
}

// openProposal is a proposed entry: records, outbox operations, a revision of
// the activations, or none of these.
type openProposal[E any] struct {
	Number   uint64
	At       int64 // time of the proposal, unix nanoseconds
	Commands []proposedCommand[E]
	Revision uint64
	Due      int64              // due time of the earliest timer that the entry sets; 0 for none
	Ops      []*request.Request // requests that asked for outbox operations

	bytes    int
	messages messageTotals
}

// messageTotals is how much an entry changes a shard's message totals.
type messageTotals struct{ Sent, Bytes, DeadLetters int }

func (m *messageTotals) add(o messageTotals) {
	m.Sent, m.Bytes, m.DeadLetters = m.Sent+o.Sent, m.Bytes+o.Bytes, m.DeadLetters+o.DeadLetters
}

func (m *messageTotals) sub(o messageTotals) {
	m.Sent, m.Bytes, m.DeadLetters = m.Sent-o.Sent, m.Bytes-o.Bytes, m.DeadLetters-o.DeadLetters
}

// batch is the open entry of records.
type batch[E any] struct {
	data     []byte
	due      int64
	rows     int // number of timers and messages that its records change
	messages messageTotals
	commands []proposedCommand[E]
}

// opsBatch is the open entry of outbox operations.
type opsBatch struct {
	data     []byte
	reqs     []*request.Request
	messages messageTotals
}

// Begin begins a leadership whose first proposal has the number next.
func (l *shardLog[E]) Begin(next uint64) { l.next, l.decided = next, next-1 }

// abandonedProposals is the work in progress of a leadership that ended.
type abandonedProposals[E any] struct {
	Proposed []openProposal[E]
	Open     []proposedCommand[E] // commands of the open batch
	OpenOps  []*request.Request   // requests of the open outbox operations
	Awaiting []*request.Request   // requests with a known outcome
}

// Abandon removes and returns the work in progress. Requested ReadIndex rounds
// stay valid.
func (l *shardLog[E]) Abandon() abandonedProposals[E] {
	a := abandonedProposals[E]{l.proposed, l.batch.commands, l.ops.reqs, l.commitBarriers.close()}
	l.proposed, l.bytes, l.batch, l.ops, l.messages = nil, 0, batch[E]{}, opsBatch{}, messageTotals{}
	l.Begin(1)
	return a
}

// Next is the number of the next proposal.
func (l *shardLog[E]) Next() uint64 { return l.next }

// DecidedTo is the number up to which all proposals are applied or lost.
func (l *shardLog[E]) DecidedTo() uint64 { return l.decided }

// Idle reports whether no entry is open or proposed.
func (l *shardLog[E]) Idle() bool {
	return len(l.proposed) == 0 && len(l.batch.commands) == 0 && len(l.ops.reqs) == 0
}

// Bytes is the size of the proposals without an outcome.
func (l *shardLog[E]) Bytes() int { return l.bytes }

// BatchBytes is the size of the open batch.
func (l *shardLog[E]) BatchBytes() int { return len(l.batch.data) }

// OpsBytes is the size of the open outbox operations.
func (l *shardLog[E]) OpsBytes() int { return len(l.ops.data) }

// Messages is the sum of the message totals of open and proposed entries.
func (l *shardLog[E]) Messages() messageTotals { return l.messages }

// Has reports whether a proposal has no outcome yet.
func (l *shardLog[E]) Has(number uint64) bool {
	return l.index(number) >= 0
}

func (l *shardLog[E]) index(number uint64) int {
	for i := range l.proposed {
		if l.proposed[i].Number == number {
			return i
		}
	}
	return -1
}

// AddRecord adds a command's record to the open batch, in the format of the
// given cluster version.
func (l *shardLog[E]) AddRecord(version sharding.ClusterVersion, term sharding.Term, record []byte, c proposedCommand[E]) {
	if l.batch.data == nil { // most entries have one record and stay in memory for a while, so there is no spare capacity
		l.batch.data = journal.AppendPacedHeader(make([]byte, 0, journal.EntryHeaderBytes+len(record)), version, journal.EntryRecords, term, l.next)
	}
	l.batch.data = append(l.batch.data, record...)
	l.batch.commands = append(l.batch.commands, c)
}

// AddMessages counts the messages of a record in the open batch.
func (l *shardLog[E]) AddMessages(m messageTotals) {
	l.batch.messages.add(m)
	l.messages.add(m)
}

// AddRows counts the timers and messages that a record in the open batch
// changes, and returns their number in the whole batch.
func (l *shardLog[E]) AddRows(n int) int {
	l.batch.rows += n
	return l.batch.rows
}

// AddTimer notes the due time of a timer that a record in the open batch sets.
func (l *shardLog[E]) AddTimer(due int64) {
	if l.batch.due == 0 || due < l.batch.due {
		l.batch.due = max(due, 1)
	}
}

// CloseBatch closes the open batch and returns its proposal and its entry. ok
// is false if no batch is open.
func (l *shardLog[E]) CloseBatch() (p openProposal[E], entry []byte, ok bool) {
	b := l.batch
	if len(b.commands) == 0 {
		return p, nil, false
	}
	l.batch = batch[E]{}
	return openProposal[E]{Commands: b.commands, Due: b.due, messages: b.messages}, b.data, true
}

// AddOps adds a request's outbox operations to the open entry of outbox
// operations.
func (l *shardLog[E]) AddOps(r *request.Request, m messageTotals, ops ...journal.OutboxOp) {
	if l.ops.data == nil {
		l.ops.data = make([]byte, journal.EntryHeaderBytes, 512)
	}
	for i := range ops {
		l.ops.data = journal.AppendOutboxOp(l.ops.data, &ops[i])
	}
	l.ops.reqs = append(l.ops.reqs, r)
	l.ops.messages.add(m)
	l.messages.add(m)
}

// CloseOps closes the open entry of outbox operations, like CloseBatch. The
// entry gets the number Next.
func (l *shardLog[E]) CloseOps(term sharding.Term) (p openProposal[E], entry []byte, ok bool) {
	o := l.ops
	if len(o.reqs) == 0 {
		return p, nil, false
	}
	l.ops = opsBatch{}
	journal.AppendEntryHeader(o.data[:0], journal.EntryOutbox, term, l.next)
	return openProposal[E]{Ops: o.reqs, messages: o.messages}, o.data, true
}

// Add numbers and adds a proposal whose entry has the given size.
func (l *shardLog[E]) Add(p openProposal[E], bytes int) (number uint64) {
	p.Number, p.bytes = l.next, bytes
	l.next++
	l.bytes += bytes
	l.proposed = append(l.proposed, p)
	return p.Number
}

// Done removes a proposal that has an outcome; ok is false if it is unknown.
// Outcomes arrive in order, except that a proposal may be reported as dropped
// before earlier proposals are decided.
func (l *shardLog[E]) Done(number uint64) (p openProposal[E], ok bool) {
	i := l.index(number)
	if i < 0 {
		return p, false
	}
	p = l.proposed[i]
	l.bytes -= p.bytes
	l.messages.sub(p.messages)
	if i == 0 {
		l.proposed[0] = openProposal[E]{}
		l.proposed = l.proposed[1:]
	} else {
		l.proposed = append(l.proposed[:i], l.proposed[i+1:]...)
	}
	l.decided = l.next - 1
	if len(l.proposed) > 0 {
		l.decided = l.proposed[0].Number - 1
	}
	return p, true
}

// Expire forgets each late request, whether its command is proposed or its
// outcome waits, and calls to(r) for it. Expire does not withdraw the
// proposal.
func (l *shardLog[E]) Expire(late func(*request.Request) bool, to func(*request.Request)) {
	for _, p := range l.proposed {
		for i, c := range p.Commands {
			if c.Req != nil && late(c.Req) {
				p.Commands[i].Req = nil
				to(c.Req)
			}
		}
	}
	l.commitBarriers.take(late, to)
}

// Await holds an outcome until every proposal up to barrier is decided and, if
// reads is set, a ReadIndex round requested from now on has confirmed the
// leadership. It returns true if nothing holds the outcome.
func (l *shardLog[E]) Await(r *request.Request, barrier uint64, reads bool) (free bool) {
	return l.commitBarriers.await(r, barrier, reads, l.decided)
}

// Release calls to(r) for the request r of each outcome that no barrier holds
// any more.
func (l *shardLog[E]) Release(to func(*request.Request)) {
	l.commitBarriers.take(func(r *request.Request) bool { return l.commitBarriers.isFree(r, l.decided) }, to)
}

// TakeLost removes and returns the outcomes that may have seen a lost
// proposal. of has the entities of that proposal. An outcome of such an
// entity may have seen the proposal if it waits for that proposal or for a
// later one. A later record of such an entity may still be committed, because
// losing a record without events does not break the hash chain.
func (l *shardLog[E]) TakeLost(number uint64, of map[sharding.EntityID]struct{}) []*request.Request {
	return l.commitBarriers.takeLost(number, of)
}
