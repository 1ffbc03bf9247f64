package request

import (
	"fmt"
	"hash/fnv"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Delivery has the fields of requests that concern a message between entities
// rather than a client's command.
type Delivery struct {
	// Source is the sender of the message, for Deliver and Redeliver. The other
	// fields up to OnReject are for Deliver: Number is the message's number
	// in the sequence of messages from Source to the request's Entity. After
	// is the number of the previous message in that sequence. OnReply and
	// OnReject are the commands of Source that get the outcome; an empty
	// name means that Source does not want it.
	Source        sharding.EntityID
	Number, After uint64
	// SentAt is when the message was sent, by the log clock of the sender's
	// shard, in Unix nanoseconds. Hops is the length of the chain of messages
	// that led to it. SentAt and Hops are 0 if they are not known.
	SentAt            int64
	Hops              uint8
	OnReply, OnReject string
	// Token is the message's token, which comes back with the outcome. If the
	// message is itself an outcome, Token is the token of the message that it
	// answers, and the guest gets it. It may be empty.
	Token string
	// Answer means that the message carries the outcome of an earlier message
	// of the request's Entity.
	Answer bool
	// Refuse, for Deliver, is set if the entity cannot carry out the message:
	// the message is rejected with this error and its number is used up,
	// without a guest call.
	Refuse *RejectedError
	// DeadLetter identifies the dead letter, for Redeliver, SendAgain and
	// Discard.
	DeadLetter journal.ItemID
	// Arrived, for Acknowledge, are the shard's messages that have arrived and
	// need not be kept.
	Arrived []Arrived
	// GaveUp, for Acknowledge, are messages of the shard that cannot be
	// delivered because their destination type does not exist.
	GaveUp []Arrived

	// Exec is private to the executor that handles the request.
	Exec DeliveryState
}

// DeliveryState is what an executor stores in a Delivery. Other packages must
// not use it.
type DeliveryState struct {
	Hops   uint8 // hops of the messages that this message causes, if hops are counted
	Intake uint8 // the message's state in the executor's intake
}

// Arrived is a message that its destination has stored, and its sender.
type Arrived struct {
	ID     journal.ItemID
	Source sharding.EntityID
}

// Codes of rejections that the runtime makes instead of a guest.
const (
	CodeNotFound    = "not_found"     // the type or command does not exist
	CodeInternal    = "internal"      // the guest failed at every attempt
	CodeTooManyHops = "too_many_hops" // the chain of messages that led to this message is too long
	CodeTooDeep     = "too_deep"      // the chain of messages that starts a run is too long
	// CodeTransient: the entities of the destination type store nothing, so a
	// message to them could be lost. It is also the code if a dead letter to
	// such a type is to be delivered again.
	CodeTransient = "transient"
	// CodeNotAccepted: the destination type does not accept messages from the
	// type of the sender.
	CodeNotAccepted = "not_accepted"
	// CodeInvalidPayload: the payload does not match the schema of the command.
	CodeInvalidPayload = "invalid_payload"
	// CodeOutOfRange: the output of the command exceeds a limit.
	CodeOutOfRange = "out_of_range"
	// CodeInvalidOutput: the output of the command has an invalid value.
	CodeInvalidOutput = "invalid_output"
)

// SendCommand derives the command id of a message. It is the same for every
// delivery attempt, which makes delivery idempotent.
func SendCommand(source sharding.EntityID, number uint64) journal.CommandID {
	h := fnv.New64a()
	h.Write([]byte(source.Type))
	h.Write([]byte{0})
	h.Write([]byte(source.ID))
	return journal.CommandID(fmt.Sprintf("send-%016x-%d", h.Sum64(), number))
}
