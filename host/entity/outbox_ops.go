package entity

import (
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// addOps adds outbox operations to the shard's open entry of outbox operations.
func (s *shard) addOps(r *request.Request, m messageTotals, ops ...journal.OutboxOp) {
	s.log.AddOps(r, m, ops...)
	s.touch()
	if s.log.OpsBytes() >= s.opts.BatchBytes {
		s.proposeBatch() // entries are numbered in the order of their proposal
		s.proposeOps()
	}
}

// proposeOps closes and proposes the open entry of outbox operations.
func (s *shard) proposeOps() {
	if p, data, ok := s.log.CloseOps(s.term); ok {
		s.propose(p, data)
	}
}

// finishOps handles the outcome of an entry of outbox operations. index is the
// index of the entry.
func (s *shard) finishOps(p *proposal, index uint64, err error) {
	for _, r := range p.Ops {
		if err == nil {
			if r.Kind == request.Deliver {
				s.finishRefusal(r)
			}
			s.freeOutboxes(r, index)
			s.settle(r, r.Result)
		} else {
			s.settle(r, request.Result{Err: err})
		}
	}
}

// freeOutboxes makes room in the outboxes of entities whose messages have
// arrived.
func (s *shard) freeOutboxes(r *request.Request, index uint64) {
	left := [...][]request.Arrived{r.Delivery.Arrived, r.Delivery.GaveUp}
	for i := range len(left[0]) + len(left[1]) {
		list, n := left[0], i
		if n >= len(list) {
			list, n = left[1], n-len(list)
		}
		source := list[n].Source
		e := s.entities.Get(source, s.key(source))
		switch {
		case e == nil:
		case e.phase == inMemory && e.outbox() > 0 && index > e.extra.messages.asOf:
			e.extra.messages.outbox--
		case e.phase == loading:
			m := e.withMessages()
			m.emptied = append(m.emptied, index)
		}
	}
}

// setOutbox sets the number of an entity's messages in flight, as counted at a
// log index.
func (e *entity) setOutbox(n int, asOf uint64) {
	if m := e.extra.messages; m != nil {
		for _, index := range m.emptied {
			if index > asOf {
				n--
			}
		}
		m.emptied = nil
	}
	if n > 0 {
		m := e.withMessages()
		m.outbox, m.asOf = n, asOf
	}
}

// noSuchType is the reason for giving up a message to an unknown type.
var noSuchType = &request.RejectedError{Code: request.CodeNotFound, Message: "the entity type does not exist"}

// acknowledge ends messages that have arrived or are given up.
func (s *shard) acknowledge(r *request.Request) {
	if len(r.Delivery.GaveUp) > 0 && s.deadLettersFull() {
		s.settle(r, request.Result{Err: request.ErrDeadLettersFull})
		return
	}
	steps := make([]journal.OutboxOp, 0, len(r.Delivery.Arrived)+len(r.Delivery.GaveUp))
	for i := range r.Delivery.Arrived {
		steps = append(steps, journal.OutboxOp{Kind: journal.OutboxAcknowledged, ID: r.Delivery.Arrived[i].ID})
	}
	for i := range r.Delivery.GaveUp {
		s.stats.Refused++
		s.opts.Logger.Warn("a message is addressed to an unknown entity type", "entity_type", r.Delivery.GaveUp[i].Source.Type, "shard_id", s.id)
		steps = append(steps, journal.OutboxOp{
			Kind: journal.OutboxGivenUp, ID: r.Delivery.GaveUp[i].ID, At: s.logNow(), Code: []byte(noSuchType.Code), Message: []byte(noSuchType.Message), Answer: rejectionJSON(noSuchType),
		})
	}
	s.addOps(r, messageTotals{DeadLetters: len(r.Delivery.GaveUp)}, steps...)
}

// sendAgain turns a dead letter that was given up into a new message, for an
// operator.
func (s *shard) sendAgain(r *request.Request) {
	id := r.Delivery.DeadLetter
	s.opts.Logger.Info("sending a dead letter again", "shard_id", s.id, "index", id.Index, "ordinal", id.Ordinal, "item", id.Item)
	s.addOps(r, messageTotals{}, journal.OutboxOp{Kind: journal.OutboxSentAgain, ID: id})
}

// discard ends a dead letter, for an operator.
func (s *shard) discard(r *request.Request) {
	id := r.Delivery.DeadLetter
	s.opts.Logger.Info("discarding a dead letter", "entity_type", r.Entity.Type, "shard_id", s.id, "index", id.Index, "ordinal", id.Ordinal, "item", id.Item)
	s.addOps(r, messageTotals{}, journal.OutboxOp{Kind: journal.OutboxDiscarded, ID: id})
}

// askRefuse starts the rejection of a message: it reads the last message number
// of the channel. The entity is not called and need not be in memory.
func (s *shard) askRefuse(r *request.Request) {
	q := &inquiry{shard: s.id, id: r.Entity, source: r.Delivery.Source, req: r, histories: s.opts.Histories}
	if s.refusals == nil {
		s.refusals = make(map[*inquiry]struct{})
	}
	s.refusals[q] = struct{}{}
	s.runner.Start(q)
}

// refuse records the rejection of a message. Its entity is not called and need
// not be in memory.
func (s *shard) refuse(q *inquiry) {
	r := q.req
	if _, asked := s.refusals[q]; !asked {
		return // the request was answered when the leadership ended
	}
	delete(s.refusals, q)
	d := r.Delivery
	switch {
	case q.err != nil:
		s.settle(r, request.Result{Err: q.err})
		return
	case d.Number <= q.number:
		s.settle(r, request.Result{Duplicate: true})
		return
	case d.After > q.number:
		s.settle(r, request.Result{Err: &request.GapError{Wanted: q.number + 1}})
		return
	case s.refusesOutcome(r):
		return
	case d.OnReply == "" && s.deadLettersFull():
		s.settle(r, request.Result{Err: request.ErrDeadLettersFull})
		return
	}
	now := s.destinationClock(d)
	m := messageTotals{Sent: 1, Bytes: 256 + len(r.Payload)}
	step := journal.OutboxOp{
		Kind: journal.OutboxRefused, Source: s.sourceSection(d),
		Type: []byte(r.Entity.Type), Entity: []byte(r.Entity.ID), At: now, Command: []byte(r.Name), OnReject: []byte(d.OnReject),
		Code: []byte(d.Refuse.Code), Message: []byte(d.Refuse.Message), Token: []byte(d.Token),
	}
	if d.Token != "" {
		step.Kind = journal.OutboxRefusedToken
	}
	if d.OnReply == "" {
		m = messageTotals{DeadLetters: 1}
		step.Payload = r.Payload
	} else {
		step.Answer = rejectionJSON(d.Refuse)
	}
	s.opts.Logger.Warn("cannot send a message", r.Trace.LogAttributes("entity_type", r.Entity.Type, "shard_id", s.id, "source_type", d.Source.Type,
		"command", r.Name, "code", d.Refuse.Code, "answered", d.OnReply != "")...)
	s.stats.Refused++
	s.proposeBatch() // earlier records are proposed first
	s.addOps(r, m, step)
	s.proposeOps()
}

// finishRefusal forgets the entity's receipt from the source, because the
// rejection took the next number.
func (s *shard) finishRefusal(r *request.Request) {
	e := s.entities.Get(r.Entity, s.key(r.Entity))
	if e == nil || e.extra == nil || e.extra.messages == nil {
		return
	}
	delete(e.extra.messages.inbox, r.Delivery.Source)
	if q := e.inquiry(); q != nil && q.source == r.Delivery.Source {
		q.stale = true
	}
}
