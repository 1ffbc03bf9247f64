package request

import (
	"fmt"
	"hash/fnv"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Delivery is what a request has that concerns a message beside a command.
type Delivery struct {
	// Of Deliver and Redeliver: who sent it. Of Deliver: its number among those
	// from Source to the request's Entity, that of the one which it follows, and
	// which commands of Source get the outcome, both empty for none.
	Source        sharding.EntityID
	Number, After uint64
	// SentAt is when it was made, by the log clock of its shard, in unix
	// nanoseconds, and Hops how many messages led to it; 0 where that is not
	// known.
	SentAt            int64
	Hops              uint8
	OnReply, OnReject string
	// Answer says that it is the outcome of a message of the request's Entity.
	Answer bool
	// Refuse, of Deliver, takes the number without asking the entity, which
	// cannot carry the message out.
	Refuse *RejectedError
	// Letter, of Redeliver, SendAgain and Discard, is the dead letter.
	DeadLetter journal.ItemID
	// Arrived, of Acknowledge, are the shard's messages that need not be kept.
	Arrived []Arrived
	// GaveUp, of Acknowledge, are messages of the shard to types that do not
	// exist.
	GaveUp []Arrived

	// Lane is the lane's.
	Lane DeliveryState
}

// DeliveryState is what a lane keeps of a Delivery; others leave it alone.
type DeliveryState struct {
	Hops   uint8 // of what is sent because of it, where that is counted
	Intake uint8 // where it stands in the lane's intake
}

// Arrived is a message that its destination has, and who sent it.
type Arrived struct {
	ID     journal.ItemID
	Source sharding.EntityID
}

// Codes of refusals that no guest has made.
const (
	CodeNotFound    = "not_found"     // there is no such type or command
	CodeInternal    = "internal"      // the guest failed at each attempt
	CodeTooManyHops = "too_many_hops" // it is the end of a chain of messages that is too long
	// CodeTransient: it was sent to a type whose entities keep nothing, or a
	// refusal of that was to be delivered again.
	CodeTransient = "transient"
	// CodeNotAccepted: it was sent to a type that takes no messages from the
	// type of its source.
	CodeNotAccepted = "not_accepted"
	// CodeInvalidPayload: its payload does not fit the schema of its command.
	CodeInvalidPayload = "invalid_payload"
	// CodeOutOfRange: what the command makes is over a limit.
	CodeOutOfRange = "out_of_range"
	// CodeInvalidOutput: what the command makes has a value that is none.
	CodeInvalidOutput = "invalid_output"
)

// SendCommand names the command of a message: the same at each delivery.
func SendCommand(source sharding.EntityID, number uint64) journal.CommandID {
	h := fnv.New64a()
	h.Write([]byte(source.Type))
	h.Write([]byte{0})
	h.Write([]byte(source.ID))
	return journal.CommandID(fmt.Sprintf("send-%016x-%d", h.Sum64(), number))
}
