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
	// Command runs a command, which may change the entity.
	Command Kind = iota
	// Query reads; it is linearizable.
	Query
	// StaleQuery reads committed state without confirming that this node still
	// leads the shard, so it may miss writes that a newer leader has
	// acknowledged.
	StaleQuery
	// Inspect returns the executor's information about the entity (Result.Info),
	// without loading it.
	Inspect
	// Passivate removes the entity from memory after the requests before it are
	// done. If the entity is not in memory, Passivate succeeds without loading
	// it.
	Passivate
	// Clear resets an entity's fault count, so that a quarantined entity is
	// loaded again at its next request. It does not load the entity.
	Clear
	// SkipTimer cancels the timer called Name, for an operator, if its command
	// fails again and again. It writes a record under the request's command id,
	// so that the journal shows who cancelled it and when. It succeeds if the
	// timer is not set.
	SkipTimer
	// Delete deletes the entity, for an operator. It writes a record with a
	// tombstone under the request's command id. If the entity does not exist,
	// only the record is written.
	Delete
	// Deliver hands a message of a different entity (Delivery) to the
	// request's entity, in sequence. It succeeds as soon as the outcome of
	// the message is stored in the entity's shard, even if the outcome is a
	// rejection; only then may the source delete the message.
	// Result.Duplicate is set if the message was delivered before. A message
	// that is not the next in sequence fails with a *GapError.
	Deliver
	// Redeliver delivers a dead letter of the entity again, for an operator
	// (Delivery.DeadLetter), and removes it. If the command is rejected, the
	// dead letter stays.
	Redeliver
	// Discard removes a dead letter of a shard, for an operator. It succeeds if
	// the dead letter does not exist. Like SendAgain and Acknowledge it is
	// addressed to an executor by its Shard, not to an entity.
	Discard
	// SendAgain turns an undeliverable dead letter of the source into a new
	// message, for an operator.
	SendAgain
	// Acknowledge removes messages that have arrived (Delivery.Arrived) or that
	// cannot be delivered (Delivery.GaveUp) from the outbox.
	Acknowledge

	// Fence succeeds once the log of its Shard contains this Revision of the
	// module activations and everything written before it is applied on this
	// node. It is not addressed to an entity.
	Fence

	// Start loads an entity into memory. Only the executor uses it.
	Start
)

// HasID reports whether requests of the kind leave a record under their command
// id. Such a request takes effect only once, however often it is sent, so an
// attempt with an unknown outcome may be repeated; and if the last attempt
// fails, the outcome is still unknown.
func (k Kind) HasID() bool {
	return k == Command || k == SkipTimer || k == Delete || k == Redeliver
}

// Changes reports whether requests of the kind write to a shard on behalf of a
// caller.
func (k Kind) Changes() bool { return k.HasID() || k == Discard || k == SendAgain }

// Records reports whether the request may write a record of its entity.
func (r *Request) Records() bool {
	return r.Kind != Query && r.Kind != StaleQuery && r.Kind != Start
}

// NoExpectation is the ExpectedSequence of a command that accepts any sequence.
const NoExpectation = -1

// Request is one command or query on its way to an entity and back. The caller
// sets the fields up to Tag and must not use the Request again until
// Done.Complete is called. Complete is called exactly once, from a goroutine of
// the runtime.
type Request struct {
	Kind    Kind
	Entity  sharding.EntityID
	Name    string // name of the command or query
	Payload []byte // not modified; must stay unchanged until completion
	// ID is the command id; empty for queries. ServerID is set if the server
	// made the id because the client gave none.
	ID       journal.CommandID
	ServerID bool
	// First is when the command was first attempted, by the clock of this
	// process, or when it arrived here. Again is set if an earlier attempt may
	// have taken effect: the command then fails with ErrForgotten if the
	// idempotency window of the entity does not reach back to First.
	First time.Time
	Again bool
	// ExpectedSequence: the command fails unless the entity is at exactly this
	// sequence; NoExpectation accepts any.
	ExpectedSequence int64
	// Principal is the authenticated caller. It is shared between requests and
	// must not be changed. It is nil for requests of entities and timers, and
	// on a node that does not authenticate callers. Roles is the revision of
	// the roles that allowed the request, or 0 if roles did not decide.
	Principal *principal.Principal
	Roles     uint64
	// Trace is the span to which the request belongs, if its trace is sampled,
	// and nil otherwise. It may be shared. For Deliver it is the span of the
	// command that sent the message, which has already ended.
	Trace *Trace
	// Delivery has the fields that concern a message; nil for other kinds.
	Delivery *Delivery
	// Revision is the revision that a Fence waits for.
	Revision uint64
	// Deadline limits the wait for admission and for a leader. A command that
	// was already proposed continues after it; only the caller's wait ends.
	Deadline time.Time
	Done     Completer
	// Tag is for the caller, to distinguish its requests.
	Tag uint64

	Result Result

	// Shard is the entity's shard; the shard router sets it.
	Shard sharding.ShardID

	// Route is private to the router, and Exec to the executor.
	Route Route
	Exec  ExecutorState
}

// ExecutorState is what an executor stores in a Request that it handles. Routers
// and callers must not use it.
type ExecutorState struct {
	// Barrier is the proposal whose commit releases the outcome (the commit
	// barrier).
	Barrier uint64
	// Round is the ReadIndex round that must be confirmed first; 0 if none is
	// needed.
	Round uint64
	// NeedsRound means that the request needs a ReadIndex round that was not
	// requested yet.
	NeedsRound bool
	// CallerPlace is the place of the caller whose unanswered requests include
	// this one, plus 1; 0 if no caller's do.
	CallerPlace uint8
	// Next is the next request in the queue.
	Next *Request
	// Since is when the executor received the request.
	Since time.Time
	// End is how the executor ends the run instead of the request's command; nil
	// if it doesn't. EndAlone means that the run's module must not end it.
	End      *RunEnd
	EndAlone bool

	took    *Took           // counts the commands of the type
	loaded  time.Time       // when the entity was loaded, if the request waited for that
	began   time.Time       // when the guest call began
	decided time.Time       // when the guest call ended
	module  *journal.Digest // the module of the guest
}

// Completer receives completed requests. Complete must not block and must not
// call back into the runtime, because an executor calls it.
type Completer interface {
	Complete(*Request)
}

// Result is the outcome of a Request. If Err is nil, the outcome is durable.
type Result struct {
	Payload    []byte           // reply; the receiver owns it
	Sequence   journal.Sequence // sequence of the entity after the command, or as the query saw it
	EventCount int
	Duplicate  bool // the reply was stored for an earlier command with this id
	// Fuel is the fuel that the guest call used; 0 for a stored reply.
	Fuel uint64
	Info *Info
	Node sharding.NodeID // node that ran the request; empty for this node
	Err  error
}

// Info is what an executor knows about an entity.
type Info struct {
	Sequence journal.Sequence
	Status   string // "active", "loading", "quarantined"; "passive" if not resident
	Resident bool
	Module   journal.Digest
	Faults   int
	LastErr  string

	QuarantinedUntil time.Time // zero unless quarantined
}
