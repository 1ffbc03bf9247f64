package request

import (
	"time"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Kind says what a Request asks of an entity.
type Kind uint8

const (
	// Command decides and may change the entity.
	Command Kind = iota
	// Query reads; it is linearizable.
	Query
	// StaleQuery reads committed state without confirming that this node still
	// leads, so it may miss what a newer leader has acknowledged.
	StaleQuery
	// Inspect asks the lane what it knows of the entity (Result.Info); it does
	// not load it.
	Inspect
	// Passivate lets the entity leave memory once what came before it is
	// decided. It succeeds, without loading it, when the entity is not in
	// memory.
	Passivate
	// Clear forgets an entity's faults: one that is parked is loaded again when
	// it is next asked for. It does not load it.
	Clear
	// SkipTimer cancels the timer that Name names, whatever it was to do: for an
	// operator, when its command fails again and again. It leaves a record under
	// the request's command id, so that the journal shows who did it and when.
	// Cancelling one that is not set succeeds.
	SkipTimer
	// Delete ends the entity's life, for an operator: a record with a tombstone
	// under the request's command id, and nothing but that record where the
	// entity has no life.
	Delete
	// Deliver carries out a message of another entity, or refuses it, in its turn
	// (Delivery). It succeeds once the entity's shard has the message, however it
	// was decided; then, and only then, the source may forget it. Result.Duplicate
	// says that it had it before. A message that is not the next fails with a
	// *GapError.
	Deliver
	// Redeliver carries out a dead letter of the entity, for an operator
	// (Delivery.DeadLetter), and ends it. A rejection leaves it.
	Redeliver
	// Discard ends a dead letter of a shard, for an operator. One that is not
	// there is discarded already. Like the next two it goes to a lane under its
	// Shard, and is for no entity.
	Discard
	// SendAgain makes a dead letter that was given up a new message, for an
	// operator.
	SendAgain
	// Acknowledge ends messages that have arrived (Delivery.Arrived), and those
	// that cannot (Delivery.GaveUp).
	Acknowledge

	// Fence succeeds once the log of its Shard has the Revision of the bindings,
	// and all that was written before it is applied here. It is for no entity.
	Fence

	// Start brings an entity into memory. Only the lane asks for it.
	Start
)

// HasID reports that requests of the kind leave a record under their command
// id. One that is sent again takes effect once, so an attempt of unknown outcome
// may be repeated; and if the last attempt fails, the outcome is still unknown.
func (k Kind) HasID() bool {
	return k == Command || k == SkipTimer || k == Delete || k == Redeliver
}

// Changes reports that requests of the kind write to a shard in somebody's name.
func (k Kind) Changes() bool { return k.HasID() || k == Discard || k == SendAgain }

// Records reports whether the request may leave a record of its entity.
func (r *Request) Records() bool {
	return r.Kind != Query && r.Kind != StaleQuery && r.Kind != Start
}

// NoExpectation is the ExpectedSequence of a command that accepts any.
const NoExpectation = -1

// Request is one command or query on its way to an entity and back. The
// caller fills the first block and does not touch the Request again until
// Done.Complete is called, exactly once, from a goroutine of the runtime.
type Request struct {
	Kind    Kind
	Entity  sharding.EntityID
	Name    string // of the command or query
	Payload []byte // not modified; must stay unchanged until completion
	// ID is the command id; empty for queries. ServerID marks one that the
	// server made because the client gave none.
	ID       journal.CommandID
	ServerID bool
	// First is when the command was first tried, by the clock of this process,
	// or when it came here. Again says that an earlier attempt may have taken
	// effect: then the command fails with ErrForgotten if the entity may have
	// forgotten what was carried out since First.
	First time.Time
	Again bool
	// ExpectedSequence rejects the command unless the entity is at exactly
	// this sequence; NoExpectation accepts any.
	ExpectedSequence int64
	// Principal is who makes it, which others share; nil where nobody was asked,
	// as on a node that asks nobody, and for what entities and timers ask. Roles
	// is the revision of the roles that allow it, 0 where none decided.
	Principal *principal.Principal
	Roles     uint64
	// Trace is the span in which it is made, where its trace is sampled, which
	// others may share; nil where it is not. Of Deliver it is that of the command
	// that made the message, which is over.
	Trace *Trace
	// Delivery is what concerns a message; nil for other kinds.
	Delivery *Delivery
	// Revision is that of a Fence.
	Revision uint64
	// Deadline bounds the wait for a place and for a leader. A command that
	// is already proposed outlives it: only the caller's wait ends.
	Deadline time.Time
	Done     Completer
	// Tag is the caller's, to tell its requests apart.
	Tag uint64

	Result Result

	// Shard is the entity's shard; the region sets it.
	Shard sharding.ShardID

	// Route is the router's, and Lane the lane's.
	Route Route
	Lane  LaneState
}

// LaneState is what a lane keeps of a Request that it has. Routers and callers
// leave it alone.
type LaneState struct {
	// Gate is the proposal whose commit releases the outcome.
	Gate uint64
	// Round is the read round that must confirm; 0 when none is needed.
	Round uint64
	// Asks: it needs a read round that is not asked for yet.
	Asks bool
	// Next follows in its queue.
	Next *Request
	// Since is when the lane was asked.
	Since time.Time

	took    *Took           // where its type's commands are counted
	loaded  time.Time       // when its entity was in memory, if it waited for that
	began   time.Time       // when the guest was given it
	decided time.Time       // when the guest had ended
	module  *journal.Digest // whose guest it was
}

// Completer receives completed requests. Complete must not block and must not
// call back into the runtime: it is called from a lane.
type Completer interface {
	Complete(*Request)
}

// Result is the outcome of a Request. When Err is nil the outcome is durable.
type Result struct {
	Payload    []byte           // reply; the receiver's to keep
	Sequence   journal.Sequence // of the entity after the command, or seen by the query
	EventCount int
	Duplicate  bool // the stored reply of an earlier command with this id
	// Fuel is what the guest's call has cost; 0 for an earlier reply.
	Fuel uint64
	Info *Info
	Node sharding.NodeID // that ran it; empty is this node
	Err  error
}

// Info is what a lane knows of an entity.
type Info struct {
	Sequence journal.Sequence
	Status   string // "active", "loading", "parked"; "passive" when not resident
	Resident bool
	Module   journal.Digest
	Faults   int
	LastErr  string

	ParkedUntil time.Time // zero unless parked
}
