package request

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/journal"
)

// Outcomes of a Request other than success. Unless it says otherwise the
// error is definite: nothing was written, and nothing will be.
//
// What a router may do depends on three of them. A *sharding.NotLeaderError
// says that this lane does not lead the shard, or lost it before the request
// was proposed; the request can go to the leader under any command id.
// ErrNotApplied says that it was proposed and that the log refused it, as it
// does during a transfer of leadership: the same holds. ErrOutcomeUnknown says
// that it was proposed and that its fate is another leader's: it may go there
// with the same command id only. Queries never end in the last two.
var (
	// ErrNotServed: the node leads the shard and has no module for the type,
	// or not yet. The request did not run; whether the type exists is for the
	// metadata to say.
	ErrNotServed = errors.New("this node does not serve the entity type yet")
	// ErrUnknownType: no module is active for the entity type.
	ErrUnknownType = errors.New("no module is active for this entity type; push one with hostd module push FILE.wasm")
	// ErrUnknownCommand: the manifest lists commands and not this one.
	ErrUnknownCommand = errors.New("the entity type has no such command; hostd module describe lists them")
	// ErrInternalCommand: the manifest marks the command internal, and it came
	// from a client.
	ErrInternalCommand = errors.New("the command is internal: it comes from entities and timers only")
	// ErrNotAccepted: a dead letter is to be delivered again, and the manifest
	// does not name its source's type among those that messages are taken from.
	ErrNotAccepted = errors.New("the entity type takes no messages from the type that sent this one; hostd module describe shows from which it does")
	// ErrUnknownQuery: the manifest lists queries and not this one.
	ErrUnknownQuery = errors.New("the entity type has no such query; hostd module describe lists them")
	// ErrCommandIDReused: the command id was used before with another command
	// or payload.
	ErrCommandIDReused = errors.New("the command id was used before for something else")
	// ErrForgotten: an earlier attempt of the command may have taken effect, and
	// the entity does not remember commands for so long. It was not carried out
	// again; nobody can tell whether it ever was but by the entity's state.
	ErrForgotten = errors.New("an earlier attempt may have taken effect, and the entity does not remember its commands for so long; look at its state")
	// ErrBusy: a queue or the node's budget is full. Retry after a moment.
	ErrBusy = errors.New("a queue is full")
	// ErrReadOnly: the disk mark is reached; writes are refused until space
	// returns.
	ErrReadOnly = errors.New("the disk is nearly full: writes are refused until space returns")
	// ErrOutcomeUnknown: leadership was lost, or the node stops, while the
	// command was in flight. Retry with the same command id.
	ErrOutcomeUnknown = errors.New("the command was in flight when leadership was lost; retry with the same command id")
	// ErrNotApplied: the journal refused the entry that carried the command.
	// Nothing was written; retry with the same command id.
	ErrNotApplied = errors.New("the journal refused the command; nothing was written")
	// ErrStopped: the node is stopping. Retry at another node with the same
	// command id.
	ErrStopped = errors.New("the node is stopping")
	// ErrDeadline: the deadline passed before the outcome was known. The
	// command may have been proposed, so its outcome is unknown.
	ErrDeadline = errors.New("the deadline passed while the command waited")
	// ErrParked: the entity faulted repeatedly and is held back.
	ErrParked = errors.New("the entity faulted repeatedly and is parked")
	// ErrDamaged: the entity's stored history does not verify; it is not served.
	ErrDamaged = errors.New("the entity's stored history does not verify; run hostd verify on the stopped node")
	// ErrOutboxFull: the entity or its shard has too many messages on their way
	// for those of the command. Retry after a moment.
	ErrOutboxFull = errors.New("too many sends are on their way")
	// ErrDeadLettersFull: the message would become a dead letter, and the shard
	// has too many of them. It waits.
	ErrDeadLettersFull = errors.New("the shard has too many dead letters")
	// ErrSuspended: an operator suspended the entity type. Queries go on; messages
	// and timers wait. Retry after the type was resumed.
	ErrSuspended = errors.New("the entity type is suspended; hostd type resume lets it go on")
	// ErrCut: the entity's first events were cut, and the module cannot load
	// any snapshot of it.
	ErrCut = errors.New("the entity's first events were cut, and its module reads none of its snapshots")
	// ErrOutputLimit: what the command or query makes is over a limit of the
	// contract, which the text names. A retry with less may succeed.
	ErrOutputLimit = errors.New("the output is over a limit")
	// ErrOutputValue: what the command makes has a value that is none, such as a
	// tag, an entity id or a schedule.
	ErrOutputValue = errors.New("the output has an invalid value")
	// ErrUnsupported: the guest asked for something this release does not do.
	ErrUnsupported = errors.New("the guest used an output that this release does not support")
)

// Errors of requests that have not come to a lane.
var (
	// ErrUnreachable: the request could not be handed to the node that leads the
	// shard. It did not run; the router sends it again.
	ErrUnreachable = errors.New("the node that leads the shard cannot be reached")
	// ErrMayComeThrough is an ErrOutcomeUnknown of a request that may be on its
	// way still, to a node that is frozen or cut off: should that node lead the
	// shard again, the request runs then. A later attempt may say that the
	// command has taken effect; that it never will, it may not.
	ErrMayComeThrough = fmt.Errorf("%w; nothing is heard of the node that has it", ErrOutcomeUnknown)
	// ErrNotReady: the node has not caught up with the cluster yet, so it
	// cannot tell what exists. Retry after a moment.
	ErrNotReady = errors.New("this node has not caught up with the cluster yet")
	// ErrModuleNotLoaded: a module serves the type, and this node cannot load
	// it, or not yet. Retry after a moment; if it lasts, push the module again.
	ErrModuleNotLoaded = errors.New("the module of this entity type is not loaded on this node; if it lasts, push it again with hostd module push")
	// ErrUnknownModule: no module with this digest is stored.
	ErrUnknownModule = errors.New("no module with this digest is stored")
	// ErrOverloaded: the server has too many calls in flight. Nothing was
	// done; retry after a moment.
	ErrOverloaded = errors.New("the server has too many calls in flight")
)

// ErrRolesUnknown: the node does not know the roles of its cluster yet, or not
// those by which another node has decided, so that it cannot tell who may do
// what. Retry after a moment.
var ErrRolesUnknown = errors.New("the node has not caught up with the roles of its cluster yet; retry after a moment")

// ErrRolesStale: the node has not heard from the metadata for longer than roles
// may be old, so that it carries out no change of a caller who is held to them.
// Another node may; here, retry once it hears the others.
var ErrRolesStale = errors.New("the node has not heard from the metadata of its cluster for a minute, and changes nothing by roles that may have changed; retry, or ask another node")

// DeniedError: the roles of who makes the request do not allow it. Message says
// who it is and what was asked.
type DeniedError struct {
	Verb       string
	EntityType string // empty where it is about none
	Message    string
}

func (e *DeniedError) Error() string { return e.Message }

// RejectedError is the handler's own refusal.
type RejectedError struct{ Code, Message string }

func (e *RejectedError) Error() string { return e.Code + ": " + e.Message }

// SequenceMismatchError: ExpectedSequence did not hold.
type SequenceMismatchError struct{ Expected, Actual journal.Sequence }

func (e *SequenceMismatchError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d, not %d", e.Actual, e.Expected)
}

// GapError: a message is not the next of its source.
type GapError struct{ Wanted uint64 }

func (e *GapError) Error() string { return fmt.Sprintf("send %d is to come first", e.Wanted) }

// GuestFaultError: the guest trapped, passed a limit or broke the contract.
type GuestFaultError struct{ Message string }

func (e *GuestFaultError) Error() string { return "guest fault: " + e.Message }

// Names of a type's limits that hold commands back, as operators set them.
const (
	LimitRate  = "rate-per-second"
	LimitFuel  = "fuel-per-second"
	LimitBytes = "bytes-per-second"
)

// RateLimitedError: a limit of the type on what it does in a second is reached
// on this node. Nothing was written; retry after RetryAfter. Limit names it,
// and is empty where it came from a node of an earlier release. It is an
// ErrBusy.
type RateLimitedError struct {
	RetryAfter time.Duration
	Limit      string
}

func (e *RateLimitedError) Error() string {
	used := "commands"
	switch e.Limit {
	case LimitFuel:
		used = "fuel"
	case LimitBytes:
		used = "bytes"
	}
	return fmt.Sprintf("the entity type has used up its %s of this second (%s); retry in %v", used, cmp.Or(e.Limit, LimitRate), e.RetryAfter.Round(time.Millisecond))
}

func (e *RateLimitedError) Unwrap() error { return ErrBusy }

// InvalidModuleError says why an upload or an activation was refused.
type InvalidModuleError struct{ Reason string }

func (e *InvalidModuleError) Error() string { return e.Reason }
