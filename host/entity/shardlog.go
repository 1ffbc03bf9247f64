package entity

import (
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shardLog is what is under way in the log of one shard; E is the executor's entities.
// Proposals are numbered in the order in which they are made, and so are the
// entries that are open: what is put into one has the number Next.
//
//	open batch, open ops --closed--> proposed --done--> decided
//
// Outcomes that have seen what is not decided wait behind gates.
type shardLog[E any] struct {
	gates

	next     uint64            // number of the next proposal
	decided  uint64            // every proposal up to this one is applied or lost
	proposed []openProposal[E] // without an outcome, in order
	bytes    int               // of proposed

	batch    batch[E]
	ops      opsBatch
	messages messageTotals // of what is open and proposed
}

// proposedCommand is a command whose record is proposed. Req is nil once its caller has
// stopped waiting.
type proposedCommand[E any] struct {
	Entity E
	Req    *request.Request
}

// openProposal is an entry on its way through the log: records, outbox operations,
// a revision of the bindings, or none of these.
type openProposal[E any] struct {
	Number   uint64
	At       int64 // when it was made
	Commands []proposedCommand[E]
	Revision uint64
	Due      int64              // of the earliest timer that it sets; 0 for none
	Ops      []*request.Request // those that asked for outbox operations

	bytes    int
	messages messageTotals
}

// messageTotals is what an entry adds to what its shard has of entity messages.
type messageTotals struct{ Sent, Bytes, DeadLetters int }

func (m *messageTotals) add(o messageTotals) {
	m.Sent, m.Bytes, m.DeadLetters = m.Sent+o.Sent, m.Bytes+o.Bytes, m.DeadLetters+o.DeadLetters
}

func (m *messageTotals) sub(o messageTotals) {
	m.Sent, m.Bytes, m.DeadLetters = m.Sent-o.Sent, m.Bytes-o.Bytes, m.DeadLetters-o.DeadLetters
}

// batch is an entry of records that is being filled.
type batch[E any] struct {
	data     []byte
	due      int64
	rows     int // of timers and messages that its records change
	messages messageTotals
	commands []proposedCommand[E]
}

// opsBatch is an entry of outbox operations that is being filled.
type opsBatch struct {
	data     []byte
	reqs     []*request.Request
	messages messageTotals
}

// Begin begins a leadership whose first proposal has that number.
func (l *shardLog[E]) Begin(next uint64) { l.next, l.decided = next, next-1 }

// abandonedProposals is what was under way when a leadership ended.
type abandonedProposals[E any] struct {
	Proposed []openProposal[E]
	Open     []proposedCommand[E] // of the batch
	OpenOps  []*request.Request   // of the outbox operations
	Awaiting []*request.Request   // outcomes known
}

// Abandon forgets what is under way, and returns it. Read rounds that were
// asked for stay known.
func (l *shardLog[E]) Abandon() abandonedProposals[E] {
	a := abandonedProposals[E]{l.proposed, l.batch.commands, l.ops.reqs, l.gates.close()}
	l.proposed, l.bytes, l.batch, l.ops, l.messages = nil, 0, batch[E]{}, opsBatch{}, messageTotals{}
	l.Begin(1)
	return a
}

// Next is the number of the proposal that is made next.
func (l *shardLog[E]) Next() uint64 { return l.next }

// Decided is the number up to which every proposal is applied or lost.
func (l *shardLog[E]) Decided() uint64 { return l.decided }

// Idle reports that nothing is open or proposed.
func (l *shardLog[E]) Idle() bool {
	return len(l.proposed) == 0 && len(l.batch.commands) == 0 && len(l.ops.reqs) == 0
}

// Bytes is how much is proposed and has no outcome.
func (l *shardLog[E]) Bytes() int { return l.bytes }

// BatchBytes is how much the open batch has.
func (l *shardLog[E]) BatchBytes() int { return len(l.batch.data) }

// OpsBytes is how much the open outbox operations have.
func (l *shardLog[E]) OpsBytes() int { return len(l.ops.data) }

// Messages is what is open and proposed adds to what the shard has of messages.
func (l *shardLog[E]) Messages() messageTotals { return l.messages }

// Has reports that a proposal has no outcome yet.
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

// AddRecord puts a command's record into the open batch, which is for a cluster
// of the level.
func (l *shardLog[E]) AddRecord(level sharding.ClusterVersion, term sharding.Term, record []byte, c proposedCommand[E]) {
	if l.batch.data == nil { // most entries hold one record, and stay in memory for a while
		l.batch.data = journal.AppendPacedHeader(make([]byte, 0, journal.EntryHeaderBytes+len(record)), level, journal.EntryRecords, term, l.next)
	}
	l.batch.data = append(l.batch.data, record...)
	l.batch.commands = append(l.batch.commands, c)
}

// AddMessages notes what a record of the open batch adds.
func (l *shardLog[E]) AddMessages(m messageTotals) {
	l.batch.messages.add(m)
	l.messages.add(m)
}

// AddRows notes how many timers and messages a record of the open batch sets,
// cancels, sends or takes, and returns how many the batch does.
func (l *shardLog[E]) AddRows(n int) int {
	l.batch.rows += n
	return l.batch.rows
}

// AddTimer notes when a timer is due that a record of the open batch sets.
func (l *shardLog[E]) AddTimer(due int64) {
	if l.batch.due == 0 || due < l.batch.due {
		l.batch.due = max(due, 1)
	}
}

// CloseBatch ends the open batch: the proposal that it makes, and its entry. ok
// is false when nothing is open.
func (l *shardLog[E]) CloseBatch() (p openProposal[E], entry []byte, ok bool) {
	b := l.batch
	if len(b.commands) == 0 {
		return p, nil, false
	}
	l.batch = batch[E]{}
	return openProposal[E]{Commands: b.commands, Due: b.due, messages: b.messages}, b.data, true
}

// AddOps puts outbox operations into the open entry of them, for the request
// that asked for them.
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

// CloseOps ends the open entry of outbox operations, as CloseBatch does. The
// entry has the number Next.
func (l *shardLog[E]) CloseOps(term sharding.Term) (p openProposal[E], entry []byte, ok bool) {
	o := l.ops
	if len(o.reqs) == 0 {
		return p, nil, false
	}
	l.ops = opsBatch{}
	journal.AppendEntryHeader(o.data[:0], journal.EntryOutbox, term, l.next)
	return openProposal[E]{Ops: o.reqs, messages: o.messages}, o.data, true
}

// Add takes a proposal in whose entry is so long, and numbers it.
func (l *shardLog[E]) Add(p openProposal[E], bytes int) (number uint64) {
	p.Number, p.bytes = l.next, bytes
	l.next++
	l.bytes += bytes
	l.proposed = append(l.proposed, p)
	return p.Number
}

// Done takes out a proposal that has an outcome; ok is false when it is not
// there. Outcomes come in order, but a dropped proposal may be told before the
// ones ahead of it are decided.
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

// Expire hands over the requests whose callers have stopped waiting, of what is
// proposed and of outcomes. What is proposed keeps its course.
func (l *shardLog[E]) Expire(late func(*request.Request) bool, to func(*request.Request)) {
	for _, p := range l.proposed {
		for i, c := range p.Commands {
			if c.Req != nil && late(c.Req) {
				p.Commands[i].Req = nil
				to(c.Req)
			}
		}
	}
	l.gates.take(late, to)
}

// Await keeps an outcome until every proposal up to gate is decided and, where
// reads says so, until leadership is confirmed by a read round asked from now
// on. It reports that nothing keeps it.
func (l *shardLog[E]) Await(r *request.Request, gate uint64, reads bool) (free bool) {
	return l.gates.await(r, gate, reads, l.decided)
}

// Release hands over the outcomes that nothing keeps any more.
func (l *shardLog[E]) Release(to func(*request.Request)) {
	l.gates.take(func(r *request.Request) bool { return l.gates.free(r, l.decided) }, to)
}

// TakeLost takes out the outcomes that may have seen a proposal that was lost:
// all of its entities that wait for it or for a later one. A record without
// events breaks no chain, so a later one of the entity may be committed all the
// same.
func (l *shardLog[E]) TakeLost(number uint64, of map[sharding.EntityID]struct{}) []*request.Request {
	return l.gates.lost(number, of)
}
