package sim

import (
	"errors"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// This file has the messages of an executor. It follows the same rules as the
// product: it runs a message only if it is the next message of its channel,
// rejects a message if the entity would reject it, and acknowledges messages
// that have arrived. Sometimes it ignores the order on purpose, which the state
// machine has to detect.

// delivery is a message at the executor of its destination.
type delivery struct {
	request.Delivery
	to      sharding.EntityID
	command string
	answer  func(error)
}

func (d *delivery) finish(err error) {
	if d.answer != nil {
		answer := d.answer
		d.answer = nil
		answer(err)
	}
}

func (d *delivery) source() journal.MessageSource {
	return journal.MessageSource{Type: []byte(d.Source.Type), ID: []byte(d.Source.ID), Number: d.Number, After: d.After}
}

// failure returns the error for an outcome.
func failure(o outcome) error {
	return [...]error{done: nil, refused: request.ErrNotApplied, unknown: request.ErrOutcomeUnknown}[o]
}

// receipt is the highest message number that an entity has received from
// another entity, and the call that receives it; nil if it is applied.
type receipt struct {
	number uint64
	by     *call
}

// posting is a proposed entry of outbox operations, with the callback for its
// result.
type posting struct {
	finish func(error)
	forget route // route of a rejected message whose receipt becomes invalid
}

// deliver accepts a message.
func (l *simExecutor) deliver(d *delivery) {
	switch {
	case !l.active || l.broken:
		d.finish(&sharding.NotLeaderError{Shard: l.shard})
	case l.n.serves > l.bound:
		l.bind()
		d.finish(request.ErrBusy)
	case d.Refuse != nil:
		l.refuse(d)
	default:
		l.receive(d)
	}
}

func (l *simExecutor) receive(d *delivery) {
	k := route{d.Source, d.to}
	has, known := l.inbox[k]
	if !known {
		number, err := l.n.machine.product.machine.Received(l.shard, d.to, d.Source)
		if err != nil {
			d.finish(request.ErrBusy)
			return
		}
		has = receipt{number: number}
		l.inbox[k] = has
	}
	careless := !l.n.w.healing && l.n.w.rng.IntN(20) == 0
	switch {
	case careless:
		l.carryOut(d, k, has)
	case d.Number <= has.number:
		if key := keyOf(d); l.flight[key] != nil {
			l.flight[key] = append(l.flight[key], &call{answer: func(o outcome, _ head) { d.finish(failure(o)) }})
			return
		}
		d.finish(nil)
	case d.After > has.number:
		if has.by == nil || has.by.answer == nil {
			delete(l.inbox, k)
		}
		d.finish(&request.GapError{Wanted: has.number + 1})
	case d.command == "trap":
		d.finish(&request.GuestFaultError{Message: "trap"})
	default:
		l.carryOut(d, k, receipt{number: d.Number})
	}
}

// keyOf returns the key that identifies a delivery among the calls in flight.
func keyOf(d *delivery) journal.CommandID {
	return request.SendCommand(d.Source, d.Number) + journal.CommandID("@"+d.to.ID)
}

// carryOut makes the record of a message. Once the record is proposed, the
// receipt of the message's route is set to then.
func (l *simExecutor) carryOut(d *delivery, k route, then receipt) {
	m := l.n.w.messages
	c := &call{entity: d.to.ID, id: request.SendCommand(d.Source, d.Number), key: keyOf(d), send: d, serves: l.n.serves, payload: make([]byte, 8)}
	if l.flight[c.key] != nil {
		d.finish(request.ErrBusy)
		return
	}
	reply, of := d.OnReply, answerTo(d.to, d.Number)
	switch d.command {
	case "refuse":
		c.rejected, reply = true, d.OnReject
		if reply == "" && l.deadLettersFull() {
			d.finish(request.ErrDeadLettersFull)
			return
		}
	case "forward":
		c.sends = append(c.sends, m.op(m.anyone(), "note"))
	}
	if reply != "" {
		c.sends = append(c.sends, journal.MessageOp{Type: []byte(d.Source.Type), ID: []byte(d.Source.ID), Command: []byte(reply), Payload: of, Token: []byte(d.Token)})
	}
	if onlyAnswers := reply != "" && len(c.sends) == 1; !onlyAnswers && !l.room(c, 2) {
		d.finish(request.ErrOutboxFull)
		return
	}
	c.answer = func(o outcome, _ head) { d.finish(failure(o)) }
	if l.enqueue(c) {
		then.by = c
		l.inbox[k] = then
	}
}

// room reports whether the messages of a call fit within the limits of pending
// messages.
func (l *simExecutor) room(c *call, most int) bool {
	if len(c.sends) == 0 {
		return true
	}
	m := l.n.w.messages
	of, all := len(c.sends), len(c.sends)
	for _, calls := range l.flight {
		for _, o := range calls {
			all += len(o.sends)
			if o.entity == c.entity {
				of += len(o.sends)
			}
		}
	}
	machine := l.n.machine.product.machine
	pending, _, err := machine.PendingMessages(l.shard, chainEntity(c.entity))
	has := machine.MessageTotals(l.shard)
	return err == nil && int(pending)+of <= most*m.entitySends && int(has.Messages)+all <= most*m.shardSends
}

func (l *simExecutor) deadLettersFull() bool {
	return int(l.n.machine.product.machine.MessageTotals(l.shard).DeadLetters) >= l.n.w.messages.deadLetters
}

// refuse rejects a message: it consumes the message's number without calling
// the entity.
func (l *simExecutor) refuse(d *delivery) {
	number, err := l.n.machine.product.machine.Received(l.shard, d.to, d.Source)
	switch {
	case err != nil:
		d.finish(request.ErrBusy)
		return
	case d.Number <= number:
		d.finish(nil)
		return
	case d.After > number:
		d.finish(&request.GapError{Wanted: number + 1})
		return
	case d.OnReply == "" && l.deadLettersFull():
		d.finish(request.ErrDeadLettersFull)
		return
	}
	l.propose() // first propose the records before it, to keep the order
	step := journal.OutboxOp{
		Kind: journal.OutboxRefused, Source: d.source(), Type: []byte(d.to.Type), Entity: []byte(d.to.ID), At: int64(l.n.w.step),
		Command: []byte(d.command), OnReject: []byte(d.OnReject), Code: []byte(d.Refuse.Code), Message: []byte(d.Refuse.Message), Token: []byte(d.Token),
	}
	if d.Token != "" {
		step.Kind = journal.OutboxRefusedToken
	}
	if d.OnReject != "" {
		step.Answer = answerTo(d.to, d.Number)
	}
	l.proposeSteps(&posting{finish: d.finish, forget: route{d.Source, d.to}}, step)
}

// maxSteps limits the outbox operations of one entry, so that they fit into the
// entry.
const maxSteps = 40

// acknowledge ends messages that have arrived or never will.
func (l *simExecutor) acknowledge(r *request.Request) {
	finish := func(err error) {
		r.Result = request.Result{Err: err}
		r.Done.Complete(r)
	}
	switch {
	case !l.active || l.broken:
		finish(&sharding.NotLeaderError{Shard: l.shard})
		return
	case len(r.Delivery.GaveUp) > 0 && l.deadLettersFull():
		finish(request.ErrDeadLettersFull)
		return
	}
	var steps []journal.OutboxOp
	for _, a := range r.Delivery.Arrived {
		steps = append(steps, journal.OutboxOp{Kind: journal.OutboxAcknowledged, ID: a.ID})
	}
	for _, a := range r.Delivery.GaveUp {
		steps = append(steps, journal.OutboxOp{Kind: journal.OutboxGivenUp, ID: a.ID, At: int64(l.n.w.step), Code: []byte(request.CodeNotFound), Answer: []byte("nobody")})
	}
	var errs error
	for waits := (len(steps) + maxSteps - 1) / maxSteps; len(steps) > 0; {
		n := min(len(steps), maxSteps)
		l.proposeSteps(&posting{finish: func(err error) {
			errs = errors.Join(errs, err)
			if waits--; waits == 0 {
				finish(errs)
			}
		}}, steps[:n]...)
		steps = steps[n:]
	}
}

// proposeSteps proposes an entry of outbox operations.
func (l *simExecutor) proposeSteps(p *posting, steps ...journal.OutboxOp) {
	l.number++
	data := journal.AppendEntryHeader(nil, journal.EntryOutbox, l.term, l.number)
	for i := range steps {
		data = journal.AppendOutboxOp(data, &steps[i])
	}
	l.proposed[l.number] = p
	if err := l.n.driver.Core().Propose(l.shard, l.term, l.number, data); err != nil {
		l.posted(l.number, request.ErrNotApplied)
	}
}

// posted handles the result of a posting. It returns false if the proposal is
// not a posting.
func (l *simExecutor) posted(number uint64, err error) bool {
	p := l.proposed[number]
	if p == nil {
		return false
	}
	delete(l.proposed, number)
	delete(l.inbox, p.forget)
	p.finish(err)
	return true
}
