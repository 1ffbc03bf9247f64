package entity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// A send is a part of its command's record, so it is made if and only if the
// command has its effect. What is applied waits in the shard's outbox; a pump
// outside of the executor brings it to the executor of its destination as a request,
// and brings back that it arrived. The destination's executor carries it out only
// in its turn; that is judged again where its record is applied, so an executor
// that is wrong about the turn costs a proposal, and nothing else.

// sourceSection is what a record says of the message that made it.
func (b *base) sourceSection(d *request.Delivery) journal.MessageSource {
	return journal.MessageSource{
		Type: []byte(d.Source.Type), ID: []byte(d.Source.ID), Number: d.Number, After: d.After, Hops: d.Lane.Hops,
		Answers: d.OnReply != "" && b.opts.Level() >= sharding.VersionMessageReplies,
	}
}

// entityMessages is what an executor knows of an entity's sends.
type entityMessages struct {
	inbox   map[sharding.EntityID]receipt // resident: numbers that are known
	inquiry *inquiry                      // the first request waits for it
	outbox  int                           // resident: sends on their way
	asOf    uint64                        // acknowledgements up to this index are accounted for
	emptied []uint64                      // loading: indexes of acknowledgements
}

// withMessages returns the entity's, to be changed.
func (e *entity) withMessages() *entityMessages {
	r := e.withExtra()
	if r.messages == nil {
		r.messages = &entityMessages{}
	}
	return r.messages
}

func (e *entity) inquiry() *inquiry {
	if e.extra == nil || e.extra.messages == nil {
		return nil
	}
	return e.extra.messages.inquiry
}

func (e *entity) outbox() int {
	if e.extra == nil || e.extra.messages == nil {
		return 0
	}
	return e.extra.messages.outbox
}

// refusesClient reports that a client's command is one that the type takes from
// entities and timers only.
func refusesClient(t *Type, r *request.Request) bool {
	return t != nil && r.Kind == request.Command && t.Internal[r.Name] && !isInternal(r)
}

// room reports whether what the output sends fits. A send that only answers
// the one it was made by always does: it takes that one's place, and two that
// wait for each other's room would do so for ever. Commands of clients and
// timers leave half of the room to entities that carry out sends and send more.
func (d *decider) room(e *entity, r *request.Request) error {
	if len(d.output.Sends) == 0 || r.Kind == request.Deliver && r.Delivery.OnReply != "" && len(d.output.Sends) == 1 {
		return nil
	}
	most := 1
	if r.Kind == request.Deliver {
		most = 2
	}
	if e.outbox()+len(d.output.Sends) > most*d.opts.EntitySends {
		return fmt.Errorf("%w: the entity has %d sends on their way", request.ErrOutboxFull, e.outbox())
	}
	size := 0
	for i := range d.output.Sends {
		size += messageBytes(&d.output.Sends[i])
	}
	has, open := d.opts.Histories.MessageTotals(e.shard.id), e.shard.log.Messages()
	messages, total := int(has.Messages)+open.Sent, int(has.MessageBytes)+open.Bytes
	if messages+len(d.output.Sends) > most*d.opts.ShardSends || total+size > most*d.opts.ShardSendBytes {
		return fmt.Errorf("%w: the shard has %d sends on their way", request.ErrOutboxFull, messages)
	}
	if d.opts.Outbox == nil {
		return nil
	}
	messages, total = d.opts.Outbox()
	if messages+len(d.output.Sends) > most*d.opts.NodeSends || total+size > most*d.opts.NodeSendBytes {
		return fmt.Errorf("%w: the node has %d sends on their way", request.ErrOutboxFull, messages)
	}
	return nil
}

// deadLettersFull reports that a shard has no room for another dead letter.
func (s *shard) deadLettersFull() bool {
	return int(s.opts.Histories.MessageTotals(s.id).DeadLetters)+s.log.Messages().DeadLetters >= s.opts.ShardDeadLetters
}

// withdraw takes back an entity that may have evolved by what is not to be,
// and answers the command.
func (d *decider) withdraw(e *entity, r *request.Request, err error) {
	if len(d.output.Events) > 0 || d.output.HasState {
		d.lane.reload(e)
	}
	e.shard.settle(r, request.Result{Err: err})
}

// answer adds the outcome of a send to what the output sends, where the source
// wants it.
func (d *decider) answer(msg *request.Delivery) {
	if msg.OnReply == "" {
		return
	}
	d.output.Sends = append(d.output.Sends, abi.Send{
		EntityType: []byte(msg.Source.Type), EntityID: []byte(msg.Source.ID), Command: []byte(msg.OnReply), Payload: bytes.Clone(d.output.Reply),
	})
}

// rejectionJSON is the payload of the command that gets a rejection.
func rejectionJSON(r *request.RejectedError) []byte {
	b, err := json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{r.Code, r.Message})
	if err != nil {
		panic("entity: " + err.Error()) // two strings
	}
	return b
}

// aheadMost is how far the time of a send may be ahead of this node's clock to
// be taken for the log clock of its destination.
const aheadMost = time.Minute

// sentBy is the shard's log clock for what a send does: not before the send was
// made, by the clock of its source's shard. So nothing that happens is recorded
// before what led to it, unless clocks differ by more than aheadMost.
func (s *shard) sentBy(d *request.Delivery) int64 {
	now := s.logNow()
	if d.SentAt <= now {
		return now
	}
	if d.SentAt-s.wallNow() > int64(aheadMost) {
		s.stats.AheadOfUs++
		return now
	}
	return d.SentAt
}

// countHops looks at the length of the chain of sends that a delivery ends. One
// that is too long ends as a dead letter: even a refusal that goes back could
// lead on.
func (b *base) countHops(d *request.Delivery) {
	if b.opts.Level() < sharding.VersionHops {
		return
	}
	if d.Lane.Hops = min(d.Hops, journal.MaxHops) + 1; d.Hops >= journal.MaxHops {
		d.OnReply, d.OnReject = "", ""
		d.Refuse = &request.RejectedError{Code: request.CodeTooManyHops, Message: "more sends led to this one, each made by the one before, than are carried out"}
	}
}
