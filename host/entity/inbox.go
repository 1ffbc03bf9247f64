package entity

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// receipt is the highest message number that an entity has received from a
// source, and the proposal that records it, or 0 if that proposal is applied.
type receipt struct{ number, proposal uint64 }

// inboxSources bounds the sources whose receipts an entity in memory keeps,
// not counting receipts in flight.
const inboxSources = 1024

// noteReceipt remembers the number of the message that a proposal records, as
// the highest number received from its source.
func (e *entity) noteReceipt(source sharding.EntityID, number, proposal uint64) {
	m := e.withMessages()
	if m.inbox == nil {
		m.inbox = make(map[sharding.EntityID]receipt)
	}
	if len(m.inbox) >= inboxSources {
		maps.DeleteFunc(m.inbox, func(_ sharding.EntityID, r receipt) bool { return r.proposal <= e.shard.log.DecidedTo() })
	}
	m.inbox[source] = receipt{number, proposal}
}

// maxRunDepth bounds how deep runs that start runs can nest: it is the maximum
// length of a chain of messages that starts a run. A message that a run sends
// continues the chain that started the run, even if the run handles a message
// of a longer chain, because the number of steps of a run is bounded anyway.
const maxRunDepth = 32

// inquiry asks for the highest message number that an entity has received from
// a source, and holds the answer. Either an entity or a rejection waits for it.
type inquiry struct {
	shard  sharding.ShardID
	id     sharding.EntityID
	source sharding.EntityID
	entity *entity          // entity whose first request waits for the answer; nil if req waits
	req    *request.Request // request to reject a message, which waits for the answer; nil if entity waits
	stale  bool             // the answer may be older than a rejection

	histories histories // source of the answer
	number    uint64
	err       error
}

// inquire delays the entity's first request until the highest message number
// received from its source is read.
func (e *entity) inquire(r *request.Request) {
	e.waiting.Unshift(r)
	e.shard.unloaded[e] = struct{}{}
	e.withMessages().inquiry = &inquiry{shard: e.shard.id, id: e.id, source: r.Delivery.Source, entity: e, histories: e.shard.opts.Histories}
	e.shard.runner.Start(e.inquiry())
}

// finishInquiry handles the answer of an inquiry.
func (b *base) finishInquiry(q *inquiry) {
	if q.req == nil {
		q.entity.finishInquiry(q)
	} else if s := b.shards[q.shard]; s != nil {
		s.refuse(q)
	}
}

// finishInquiry handles the answer of the entity's inquiry. The entity had no message
// of this source in flight when the inquiry was made.
func (e *entity) finishInquiry(q *inquiry) {
	if e.inquiry() != q {
		return // the entity has left memory since
	}
	e.extra.messages.inquiry = nil
	switch {
	case q.stale:
	case q.err == nil:
		e.noteReceipt(q.source, q.number, 0)
	default:
		r := e.waiting.Pop()
		if r == nil {
			break
		}
		if r.Kind != request.Deliver {
			e.waiting.Unshift(r)
			break
		}
		e.shard.settle(r, request.Result{Err: fmt.Errorf("%w: %w", request.ErrBusy, q.err)})
	}
	e.shard.enqueue(e)
}

// deliver decides a message to an entity in memory.
func (d *decider) deliver(e *entity, r *request.Request) {
	s, msg := e.shard, r.Delivery
	has, known := e.withMessages().inbox[msg.Source]
	now := s.destinationClock(msg)
	switch {
	case !known:
		e.inquire(r)
	case msg.Number <= has.number:
		r.Result = request.Result{Sequence: e.sequence, Duplicate: true}
		s.awaitCommit(r, has.proposal, false)
	case msg.After > has.number:
		if has.proposal <= s.log.DecidedTo() {
			delete(e.withMessages().inbox, msg.Source) // the receipt is read again for the next message
		}
		s.settle(r, request.Result{Err: &request.GapError{Wanted: has.number + 1}})
	case d.readOnly():
		s.settle(r, request.Result{Err: request.ErrReadOnly})
	case d.opts.Settings.IsSuspended(e.id.Type):
		s.settle(r, request.Result{Err: request.ErrSuspended})
	case s.refusesOutcome(r): // the message waits until its sender accepts outcomes
	case e.typ.Transient:
		d.turnDown(e, r, now, &request.RejectedError{Code: request.CodeTransient, Message: "the entity type is transient, so messages to its entities could be lost"})
	case e.typ.refusesMessage(e.id, r) != nil:
		d.turnDown(e, r, now, e.typ.refusesMessage(e.id, r))
	case e.typ.Workflow && !e.exists && msg.Exec.Hops > maxRunDepth:
		d.turnDown(e, r, now, &request.RejectedError{Code: request.CodeTooDeep, Message: "the chain of messages that started this workflow run is too long"})
	case !e.canAfford(r): // deliveries executed since this one was admitted have spent the budget
	default:
		d.handle(e, r, now, 0)
	}
}

// turnDown rejects a message without calling the guest.
func (d *decider) turnDown(e *entity, r *request.Request, now int64, why *request.RejectedError) {
	d.fuel = 0
	d.output.Reset()
	d.recordRejection(e, r, Env{Now: now}, why)
}

// redeliver decides a dead letter that an operator wants delivered again.
func (d *decider) redeliver(e *entity, r *request.Request) {
	switch {
	case d.readOnly():
		e.shard.settle(r, request.Result{Err: request.ErrReadOnly})
	case d.opts.Settings.IsSuspended(e.id.Type):
		e.shard.settle(r, request.Result{Err: request.ErrSuspended})
	case !e.typ.accepts(e.id, r.Delivery.Source):
		e.shard.settle(r, request.Result{Err: request.ErrNotAccepted})
	case !e.typ.hasCommand(r.Name):
		e.shard.settle(r, request.Result{Err: e.typ.refusesCommandName(r)})
	default:
		d.opts.Logger.Info("redelivering a dead letter", "entity_type", e.id.Type, "shard_id", e.shard.id,
			"index", r.Delivery.DeadLetter.Index, "ordinal", r.Delivery.DeadLetter.Ordinal, "item", r.Delivery.DeadLetter.Item, "command", r.Name)
		d.handle(e, r, e.shard.logNow(), 0)
	}
}

// refusalLines is how many lines per second an executor logs about dead letters,
// because one command can make a hundred of them.
const refusalLines = 10

// logRefusal logs that a message becomes a dead letter.
func (d *decider) logRefusal(e *entity, r *request.Request, why *request.RejectedError) {
	if d.refusals.Take(d.now.UnixNano()) > 0 {
		d.unlogged++
		return
	}
	d.opts.Logger.Warn("a message was rejected and becomes a dead letter", r.Trace.LogAttributes("entity_type", e.id.Type, "shard_id", e.shard.id, "source_type", r.Delivery.Source.Type,
		"command", r.Name, "code", why.Code, "unlogged_before", d.unlogged)...)
	d.unlogged = 0
}

// recordRejection records that the entity rejects a message. The record uses up
// the message number. The source gets the rejection if it asked for an answer;
// otherwise the message becomes a dead letter. The rest of the output has no
// effect.
func (d *decider) recordRejection(e *entity, r *request.Request, env Env, why *request.RejectedError) {
	s, msg := e.shard, r.Delivery
	evolved, resident := len(d.output.Events) > 0 || d.output.HasState, true
	d.output.Reset()
	switch {
	case msg.OnReply != "":
		d.output.Sends = append(d.output.Sends, abi.Send{
			EntityType: []byte(msg.Source.Type), EntityID: []byte(msg.Source.ID), Command: []byte(msg.OnReject), Payload: rejectionJSON(why), Token: []byte(msg.Token),
		})
	case s.deadLettersFull():
		s.settle(r, request.Result{Err: request.ErrDeadLettersFull})
	default:
		d.logRefusal(e, r, why)
		d.refusal = &journal.Refusal{Code: []byte(why.Code), Message: []byte(why.Message), Command: []byte(r.Name), Payload: r.Payload, Token: []byte(msg.Token)}
	}
	if d.refusal != nil || len(d.output.Sends) > 0 {
		if err := d.checkMessageRoom(e, r); err != nil {
			s.settle(r, request.Result{Err: err})
		} else {
			d.stats.Refused++
			d.output.Delete = !e.exists // a rejection must not create the entity
			resident = d.append(e, r, env, 0)
		}
	}
	if evolved && resident {
		d.exec.reload(e)
	}
}

// enqueueDelivery queues a delivery.
func (c *core) enqueueDelivery(s *shard, r *request.Request) {
	switch {
	case c.opts.Settings.IsSuspended(r.Entity.Type):
		c.finish(r, request.Result{Err: request.ErrSuspended})
	case c.intake.IsFull(r.Entity.Type) || s.undecided-s.callers.total >= max(1, c.opts.ShardInFlight/2) || s.undecided >= max(1, c.opts.ShardInFlight/4*3):
		c.finish(r, request.Result{Err: request.ErrBusy})
	default:
		s.undecided++
		c.owed++
		c.intake.Put(r)
	}
}
