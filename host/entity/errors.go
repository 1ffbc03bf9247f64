package entity

import (
	"errors"
	"fmt"

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
	// ErrOutboxFull: the entity or its shard has too many sends on their way
	// for those of the command. Retry after a moment.
	ErrOutboxFull = errors.New("too many sends are on their way")
	// ErrLettersFull: the send would become a dead letter, and the shard has
	// too many of them. It waits.
	ErrLettersFull = errors.New("the shard has too many dead letters")
	// ErrCut: the entity's first events were cut, and the module cannot load
	// any snapshot of it.
	ErrCut = errors.New("the entity's first events were cut, and its module reads none of its snapshots")
	// ErrUnsupported: the guest asked for something this release does not do.
	ErrUnsupported = errors.New("the guest used an output that this release does not support")
)

// RejectedError is the handler's own refusal.
type RejectedError struct{ Code, Message string }

func (e *RejectedError) Error() string { return e.Code + ": " + e.Message }

// SequenceMismatchError: ExpectedSequence did not hold.
type SequenceMismatchError struct{ Expected, Actual journal.Sequence }

func (e *SequenceMismatchError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d, not %d", e.Actual, e.Expected)
}

// GapError: a send is not the next of its source.
type GapError struct{ Wanted uint64 }

func (e *GapError) Error() string { return fmt.Sprintf("send %d is to come first", e.Wanted) }

// GuestFaultError: the guest trapped, passed a limit or broke the contract.
type GuestFaultError struct{ Message string }

func (e *GuestFaultError) Error() string { return "guest fault: " + e.Message }
