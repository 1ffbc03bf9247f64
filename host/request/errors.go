package request

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/journal"
)

// Errors that end a Request. Unless its comment says otherwise, an error is
// definite: nothing was written, and nothing will be.
//
// Three of them decide what a router may do. A *sharding.NotLeaderError says
// that this executor does not lead the shard, or lost the leadership before the
// request was proposed; the request can be sent to the leader under any command
// id. ErrNotApplied says that the request was proposed and the log rejected it,
// as happens during a leadership transfer: again any command id is safe.
// ErrOutcomeUnknown says that the request was proposed and that a new leader
// will decide whether it is committed. The request may be sent to that
// leader only with the same command id, because it may already have taken
// effect. Queries never end with ErrNotApplied or ErrOutcomeUnknown.
var (
	// ErrNotServed: the node leads the shard but has no module for the type, or
	// none yet. The request did not run. Whether the type exists is known only
	// from the metadata.
	ErrNotServed = errors.New("this node does not serve the entity type yet")
	// ErrUnknownType: no module is active for the entity type.
	ErrUnknownType = errors.New("no module is active for this entity type; push one with 'hostd module push FILE.wasm'")
	// ErrUnknownCommand: the manifest lists commands, and the requested
	// command is not among them.
	ErrUnknownCommand = errors.New("the entity type has no such command; 'hostd module describe' lists them")
	// ErrInternalCommand: the manifest marks the command internal, and it came
	// from a client.
	ErrInternalCommand = errors.New("the command is internal: only entities and timers may send it")
	// ErrNotAccepted: a dead letter was to be delivered again, and the manifest
	// does not list its sender's type among the types from which messages are
	// accepted.
	ErrNotAccepted = errors.New("the entity type does not accept messages from the sender's type; 'hostd module describe' shows which types it accepts")
	// ErrUnknownQuery: the manifest lists queries, and the requested query
	// is not among them.
	ErrUnknownQuery = errors.New("the entity type has no such query; 'hostd module describe' lists them")
	// ErrCommandIDReused: the command id was used before with a different
	// command or payload.
	ErrCommandIDReused = errors.New("the command id was already used for a different command")
	// ErrForgotten: an earlier attempt of the command may have taken effect,
	// and it is older than the entity's idempotency window. The command was not
	// executed again. Only the entity's state can show whether it was ever
	// executed.
	ErrForgotten = errors.New("an earlier attempt may have taken effect, and it is older than the entity's idempotency window; check the entity's state")
	// ErrBusy: a queue or the node's budget is full. Retry after a moment.
	ErrBusy = errors.New("a queue is full")
	// ErrReadOnly: the disk is nearly full, so the node rejects writes until
	// space is freed.
	ErrReadOnly = errors.New("the disk is nearly full: the node rejects writes until space is freed")
	// ErrOutcomeUnknown: leadership was lost, or the node stopped, while the
	// command was in flight. Retry with the same command id.
	ErrOutcomeUnknown = errors.New("the command was in flight when leadership was lost; retry with the same command id")
	// ErrNotApplied: the journal rejected the entry that carried the command.
	// Nothing was written; retry with the same command id.
	ErrNotApplied = errors.New("the journal rejected the command; nothing was written")
	// ErrStopped: the node is stopping. Retry at a different node with the same
	// command id.
	ErrStopped = errors.New("the node is stopping")
	// ErrDeadline: the deadline passed before the outcome was known. The
	// command may have been proposed, so its outcome is unknown.
	ErrDeadline = errors.New("the deadline passed while the command waited")
	// ErrQuarantined: the entity is quarantined because it faulted repeatedly.
	ErrQuarantined = errors.New("the entity faulted repeatedly and is quarantined")
	// ErrDamaged: the entity's stored history does not verify, so the entity is
	// not served.
	ErrDamaged = errors.New("the entity's stored history is damaged; stop the node and run 'hostd verify' on it")
	// ErrOutboxFull: the entity or its shard has too many undelivered messages,
	// so the messages of the command cannot be added. Retry after a moment.
	ErrOutboxFull = errors.New("too many undelivered messages")
	// ErrDeadLettersFull: the message would become a dead letter, but the shard
	// has too many of them. The message waits.
	ErrDeadLettersFull = errors.New("the shard has too many dead letters")
	// ErrSuspended: an operator suspended the entity type. Queries continue to
	// work; messages and timers wait. Retry after the type was resumed.
	ErrSuspended = errors.New("the entity type is suspended; 'hostd type resume' resumes it")
	// ErrCompacted: the entity's first events were compacted away, and the module
	// cannot load any snapshot of the entity.
	ErrCompacted = errors.New("the entity's first events were truncated, and its module cannot read any of its snapshots")
	// ErrOutputLimit: the output of the command or query exceeds a limit of the
	// ABI contract, which the error text names. A retry that produces less may
	// succeed.
	ErrOutputLimit = errors.New("the output exceeds a limit")
	// ErrOutputValue: the output of the command has an invalid value, such as a
	// tag, an entity id or a schedule.
	ErrOutputValue = errors.New("the output has an invalid value")
	// ErrUnsupported: the guest used an output that this release does not
	// support.
	ErrUnsupported = errors.New("the guest used an output that this release does not support")
)

// Errors of requests that did not reach an executor.
var (
	// ErrUnreachable: the request could not be sent to the node that leads the
	// shard. It did not run; the router sends it again.
	ErrUnreachable = errors.New("the node that leads the shard is unreachable")
	// ErrMayStillApply is an ErrOutcomeUnknown of a request that may still be
	// in flight to a node that is paused or partitioned. If that node leads the
	// shard again, the request runs then. A later attempt may therefore report
	// that the command has taken effect, but never that it will not.
	ErrMayStillApply = fmt.Errorf("%w; no heartbeats from the node that received it", ErrOutcomeUnknown)
	// ErrNotReady: the node has not caught up with the cluster's metadata yet,
	// so it does not know what exists. Retry after a moment.
	ErrNotReady = errors.New("this node has not caught up with the cluster yet")
	// ErrModuleNotLoaded: a module serves the type, but this node cannot load
	// it, or has not loaded it yet. Retry after a moment; if the error
	// persists, push the module again.
	ErrModuleNotLoaded = errors.New("the module of this entity type is not loaded on this node; if this persists, push it again with 'hostd module push'")
	// ErrUnknownModule: no module with this digest is stored.
	ErrUnknownModule = errors.New("no module with this digest is stored")
	// ErrOverloaded: the server has too many calls in flight. Nothing was done;
	// retry after a moment.
	ErrOverloaded = errors.New("the server has too many calls in flight")
)

// ErrRolesUnknown: the node does not know the roles of its cluster yet, or not
// the newer revision by which a different node decided, so it cannot authorize
// the call. Retry after a moment.
var ErrRolesUnknown = errors.New("the node has not caught up with the roles of its cluster yet; retry after a moment")

// ErrRolesStale: the node has not heard from the metadata for longer than roles
// may be old, so it rejects changes by callers that roles restrict. A different
// node may accept them; at this node, retry after it is connected again.
var ErrRolesStale = errors.New("the node has not heard from the metadata shard for a minute, so its roles may be outdated and it rejects changes; retry, or call a different node")

// DeniedError: the caller's roles do not allow the request. Message names the
// caller and what it asked for.
type DeniedError struct {
	Verb       string
	EntityType string // empty if the request is about no type
	Message    string
}

func (e *DeniedError) Error() string { return e.Message }

// RejectedError is a rejection by the guest's own handler.
type RejectedError struct{ Code, Message string }

func (e *RejectedError) Error() string { return e.Code + ": " + e.Message }

// SequenceMismatchError: the entity was not at ExpectedSequence.
type SequenceMismatchError struct{ Expected, Actual journal.Sequence }

func (e *SequenceMismatchError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d, not %d", e.Actual, e.Expected)
}

// GapError: a message is not the next message of its source; Wanted is the
// number that must come first.
type GapError struct{ Wanted uint64 }

func (e *GapError) Error() string { return fmt.Sprintf("message %d is expected first", e.Wanted) }

// GuestFaultError: the guest trapped, exceeded a limit or violated the ABI
// contract.
type GuestFaultError struct{ Message string }

func (e *GuestFaultError) Error() string { return "guest fault: " + e.Message }

// Names of the per-type limits that hold back commands, as operators set them.
const (
	LimitRate  = "rate-per-second"
	LimitFuel  = "fuel-per-second"
	LimitBytes = "bytes-per-second"
)

// RateLimitedError: the type has reached one of its per-second limits on this
// node. Nothing was written; retry after RetryAfter. Limit is the name of the
// limit, and is empty if the error came from a node of an earlier release. It
// wraps ErrBusy.
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
	return fmt.Sprintf("the entity type has used its %s for this second (%s); retry in %v", used, cmp.Or(e.Limit, LimitRate), e.RetryAfter.Round(time.Millisecond))
}

func (e *RateLimitedError) Unwrap() error { return ErrBusy }

// InvalidModuleError says why an upload or an activation was rejected.
type InvalidModuleError struct{ Reason string }

func (e *InvalidModuleError) Error() string { return e.Reason }
