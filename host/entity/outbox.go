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

// A message is a part of its command's record, so it is sent if and only if the
// command takes effect. Applied messages wait in the shard's outbox. An outbox
// dispatcher outside the executor passes each to the executor of its
// destination as a request, and acknowledges it at the source when it has
// arrived. The destination's executor executes a message only if it is the next
// of its channel. This is checked again when the record is applied, so an
// executor with a wrong idea of the order only loses a proposal.

// sourceSection returns the section of a record that identifies the message
// that caused it.
func (b *base) sourceSection(d *request.Delivery) journal.MessageSource {
	return journal.MessageSource{
		Type: []byte(d.Source.Type), ID: []byte(d.Source.ID), Number: d.Number, After: d.After, Hops: d.Exec.Hops,
		Answers: d.OnReply != "" && b.opts.ClusterVersion() >= sharding.VersionMessageReplies,
	}
}

// entityMessages holds an entity's messages as its executor knows them.
type entityMessages struct {
	inbox   map[sharding.EntityID]receipt // if in memory: the known receipts by source
	inquiry *inquiry                      // inquiry for which the first request waits; nil if none
	outbox  int                           // if in memory: number of messages in flight
	asOf    uint64                        // outbox includes acknowledgements up to this log index
	emptied []uint64                      // while loading: log indexes of acknowledgements that arrive
}

// withMessages returns the entity's messages and creates them if necessary.
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

// refusesClient reports whether a client sent a command that the type accepts
// only from entities and timers.
func refusesClient(t *Type, r *request.Request) bool {
	return t != nil && r.Kind == request.Command && t.Internal[r.Name] && !isInternal(r)
}

// checkMessageRoom returns an error if the output's messages exceed a limit. If
// the answer to the executed message is the only message, it always fits,
// because it takes the place of the executed message. Otherwise two entities
// with full outboxes could wait for each other forever. Commands of clients and
// timers may use only half of the room, so that entities which execute messages
// can send more.
func (d *decider) checkMessageRoom(e *entity, r *request.Request) error {
	if len(d.output.Sends) == 0 || r.Kind == request.Deliver && r.Delivery.OnReply != "" && len(d.output.Sends) == 1 {
		return nil
	}
	most := 1
	if r.Kind == request.Deliver {
		most = 2
	}
	if e.outbox()+len(d.output.Sends) > most*d.opts.EntitySends {
		return fmt.Errorf("%w: the entity has %d undelivered messages", request.ErrOutboxFull, e.outbox())
	}
	size := 0
	for i := range d.output.Sends {
		size += messageBytes(&d.output.Sends[i])
	}
	has, open := d.opts.Histories.MessageTotals(e.shard.id), e.shard.log.Messages()
	messages, total := int(has.Messages)+open.Sent, int(has.MessageBytes)+open.Bytes
	if messages+len(d.output.Sends) > most*d.opts.ShardSends || total+size > most*d.opts.ShardSendBytes {
		return fmt.Errorf("%w: the shard has %d undelivered messages", request.ErrOutboxFull, messages)
	}
	if d.opts.Outbox == nil {
		return nil
	}
	messages, total = d.opts.Outbox.Totals()
	if messages+len(d.output.Sends) > most*d.opts.NodeSends || total+size > most*d.opts.NodeSendBytes {
		return fmt.Errorf("%w: the node has %d undelivered messages", request.ErrOutboxFull, messages)
	}
	return nil
}

// refusesOutcome reports whether a message wants an outcome that its sender
// would not accept now, and ends the attempt to deliver it. The message is not
// executed and waits in the sender's outbox, because no limit applies to an
// outcome.
func (s *shard) refusesOutcome(r *request.Request) bool {
	if r.Delivery.OnReply == "" || s.opts.Outbox == nil || !s.opts.Outbox.HasStuckOutcomes(s.id, r.Delivery.Source) {
		return false
	}
	s.settle(r, request.Result{Err: fmt.Errorf("%w: outcomes wait in this shard because the sender, of type %s, is quarantined or suspended", request.ErrOutboxFull, r.Delivery.Source.Type)})
	return true
}

// deadLettersFull reports whether the shard has no room for another dead
// letter.
func (s *shard) deadLettersFull() bool {
	return int(s.opts.Histories.MessageTotals(s.id).DeadLetters)+s.log.Messages().DeadLetters >= s.opts.ShardDeadLetters
}

// errTokensTooEarly means that an output has sends with tokens, which this
// cluster version cannot store.
var errTokensTooEarly = fmt.Errorf("messages with tokens need cluster version %d: run 'hostd cluster upgrade finalize'", sharding.VersionMessageTokens)

// checkTokens returns errTokensTooEarly if the output has sends with tokens
// that the cluster version does not allow.
func (d *decider) checkTokens() error {
	for i := range d.output.Sends {
		if len(d.output.Sends[i].Token) > 0 && d.opts.ClusterVersion() < sharding.VersionMessageTokens {
			return errTokensTooEarly
		}
	}
	return nil
}

// withdraw answers a command whose output is not recorded. If the output has
// changed the entity's state, withdraw reloads the entity.
func (d *decider) withdraw(e *entity, r *request.Request, err error) {
	if len(d.output.Events) > 0 || d.output.HasState {
		d.exec.reload(e)
	}
	e.shard.settle(r, request.Result{Err: err})
}

// answer adds a message with the outcome to the output if the source has asked
// for it.
func (d *decider) answer(msg *request.Delivery) {
	if msg.OnReply == "" {
		return
	}
	d.output.Sends = append(d.output.Sends, abi.Send{
		EntityType: []byte(msg.Source.Type), EntityID: []byte(msg.Source.ID), Command: []byte(msg.OnReply), Payload: bytes.Clone(d.output.Reply), Token: []byte(msg.Token),
	})
}

// rejectionJSON returns the payload of the command that reports a rejection to
// the source.
func rejectionJSON(r *request.RejectedError) []byte {
	b, err := json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{r.Code, r.Message})
	if err != nil {
		panic("entity: " + err.Error()) // impossible for two strings
	}
	return b
}

// aheadMost is how far the time of a message may be ahead of this node's clock.
// If it is further ahead, it does not become the log clock of the destination.
const aheadMost = time.Minute

// destinationClock returns the destination shard's log clock for the effects
// of a message. Unless the clocks of the two shards differ by more than
// aheadMost, it is not before the time that the source shard's log clock gave
// the message, so that no effect is recorded before its cause.
func (s *shard) destinationClock(d *request.Delivery) int64 {
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

// countHops counts the chain of messages that leads to a delivery. If the chain
// is too long, the delivery becomes a dead letter, because even a rejection
// sent back could continue the chain.
func (b *base) countHops(d *request.Delivery) {
	if b.opts.ClusterVersion() < sharding.VersionHops {
		return
	}
	if d.Exec.Hops = min(d.Hops, journal.MaxHops) + 1; d.Hops >= journal.MaxHops {
		d.OnReply, d.OnReject, d.Token = "", "", ""
		d.Refuse = &request.RejectedError{Code: request.CodeTooManyHops, Message: "the chain of messages that led to this one is too long"}
	}
}
