package entity

import (
	"context"
	"fmt"
	"maps"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Codes of refusals that no guest has made.
const (
	CodeNotFound = "not_found" // there is no such type or command
	CodeInternal = "internal"  // the guest failed at each attempt
)

// receipt is the highest number that an entity has from a source, and the
// proposal that carries it; 0 when it is applied.
type receipt struct{ number, proposal uint64 }

// inboxSources bounds the sources that a resident entity keeps numbers of, but
// for those that are in flight.
const inboxSources = 1024

// received notes that a proposal takes a source's number.
func (e *entity) received(source sharding.EntityID, number, proposal uint64) {
	m := e.mail()
	if m.inbox == nil {
		m.inbox = make(map[sharding.EntityID]receipt)
	}
	if len(m.inbox) >= inboxSources {
		maps.DeleteFunc(m.inbox, func(_ sharding.EntityID, r receipt) bool { return r.proposal <= e.shard.decided })
	}
	m.inbox[source] = receipt{number, proposal}
}

// inquiry asks which number an entity has from a source, and is the answer.
type inquiry struct {
	shard  sharding.ShardID
	id     sharding.EntityID
	source sharding.EntityID
	entity *entity  // that waits for it, or
	req    *Request // a refusal
	stale  bool     // it may have been read too early

	number uint64
	err    error
}

// read runs on a loader's goroutine.
func (q *inquiry) read(_ context.Context, h Histories) {
	q.number, q.err = h.Received(q.shard, q.id, q.source)
}

// inquire has the number of the entity's first request looked for.
func (c *core) inquire(e *entity, r *Request) {
	e.waiting.unshift(r)
	c.away[e] = struct{}{}
	e.mail().inquiry = &inquiry{shard: e.shard.id, id: e.id, source: r.Delivery.Source, entity: e}
	c.loader.lookUp(e.inquiry())
}

// answered takes the answer of an inquiry. Nothing of the entity that takes a
// number of that source was in flight when it was asked.
func (c *core) answered(q *inquiry) {
	if q.req != nil {
		c.refuse(q)
		return
	}
	e := q.entity
	if e.inquiry() != q {
		return // the entity has left meanwhile
	}
	e.rest.mail.inquiry = nil
	switch {
	case q.stale:
	case q.err == nil:
		e.received(q.source, q.number, 0)
	default:
		r := e.waiting.pop()
		if r == nil {
			break
		}
		if r.Kind != Deliver {
			e.waiting.unshift(r)
			break
		}
		c.settle(e.shard, r, Result{Err: fmt.Errorf("%w: %w", ErrBusy, q.err)})
	}
	c.enqueue(e)
}

// deliver decides a send on a resident entity.
func (c *core) deliver(e *entity, r *Request) {
	s, d := e.shard, r.Delivery
	has, known := e.mail().inbox[d.Source]
	now := c.logNow(s)
	switch {
	case !known:
		c.inquire(e, r)
	case d.Number <= has.number:
		r.Result = Result{Sequence: e.sequence, Duplicate: true}
		c.hold(s, r, has.proposal, false)
	case d.After > has.number:
		if has.proposal <= s.decided {
			delete(e.mail().inbox, d.Source) // look again at the next
		}
		c.settle(s, r, Result{Err: &GapError{Wanted: has.number + 1}})
	case c.readOnly():
		c.settle(s, r, Result{Err: ErrReadOnly})
	case e.typ.Transient:
		c.fuel = 0
		c.output.Reset()
		c.refused(e, r, Env{Now: now}, &RejectedError{Code: CodeTransient, Message: "the entities of this type keep nothing, so what is sent to them could be lost"})
	case e.typ.Commands != nil && !e.typ.Commands[r.Name]:
		c.fuel = 0
		c.output.Reset()
		c.refused(e, r, Env{Now: now}, &RejectedError{Code: CodeNotFound, Message: "the entity type has no such command"})
	default:
		c.handle(e, r, now, 0)
	}
}

// redeliver decides a dead letter that a person wants delivered again.
func (c *core) redeliver(e *entity, r *Request) {
	switch {
	case c.readOnly():
		c.settle(e.shard, r, Result{Err: ErrReadOnly})
	case e.typ.Commands != nil && !e.typ.Commands[r.Name]:
		c.settle(e.shard, r, Result{Err: ErrUnknownCommand})
	default:
		c.opts.Logger.Info("a dead letter is delivered again", "entity_type", e.id.Type, "shard_id", e.shard.id,
			"index", r.Delivery.Letter.Index, "ordinal", r.Delivery.Letter.Ordinal, "item", r.Delivery.Letter.Item, "command", r.Name)
		c.handle(e, r, c.logNow(e.shard), 0)
	}
}

// refused records that the entity does not carry out a send: the number is
// taken, and the source gets the refusal, or it becomes a dead letter. Nothing
// else of the output takes effect.
func (c *core) refused(e *entity, r *Request, env Env, why *RejectedError) {
	s, d := e.shard, r.Delivery
	evolved := len(c.output.Events) > 0 || c.output.HasState
	c.output.Reset()
	switch {
	case d.OnReply != "":
		c.output.Sends = append(c.output.Sends, abi.Send{
			EntityType: []byte(d.Source.Type), EntityID: []byte(d.Source.ID), Command: []byte(d.OnReject), Payload: rejectionJSON(why),
		})
	case c.lettersFull(s):
		c.settle(s, r, Result{Err: ErrLettersFull})
	default:
		c.opts.Logger.Warn("a send is refused and becomes a dead letter", "entity_type", e.id.Type, "shard_id", s.id, "source_type", d.Source.Type,
			"command", r.Name, "code", why.Code)
		c.refusal = &journal.Refusal{Code: []byte(why.Code), Message: []byte(why.Message), Command: []byte(r.Name), Payload: r.Payload}
	}
	if c.refusal != nil || len(c.output.Sends) > 0 {
		if err := c.room(e, r); err != nil {
			c.settle(s, r, Result{Err: err})
		} else {
			c.stats.Refused++
			c.output.Delete = !e.lives // it does not come to life by what it refuses
			c.append(e, r, env, 0)
		}
	}
	if evolved {
		c.evict(e)
		c.revive(e)
	}
}
