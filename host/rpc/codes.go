package rpc

import (
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Errors of the server's dependencies that are no outcomes of an entity.
var (
	// ErrNotReady: the node has not caught up with the cluster yet, so it
	// cannot tell what exists. Retry after a moment.
	ErrNotReady = errors.New("this node has not caught up with the cluster yet")
	// ErrModuleNotLoaded: a module serves the type, and this node cannot load
	// it, or not yet. Retry after a moment; if it lasts, push the module again.
	ErrModuleNotLoaded = errors.New("the module of this entity type is not loaded on this node; if it lasts, push it again with hostd module push")
	// ErrNoMajority: too few other nodes can be reached for what was asked.
	// Retry after a moment.
	ErrNoMajority = errors.New("not enough nodes of the cluster can be reached for this; retry after a moment")
	// ErrUnknownModule: no module with this digest is stored.
	ErrUnknownModule = errors.New("no module with this digest is stored")
	// ErrOverloaded: the server has too many calls in flight. Nothing was
	// done; retry after a moment.
	ErrOverloaded = errors.New("the server has too many calls in flight")
)

// errNoOutcome: the caller's wait ended before the outcome was known.
var errNoOutcome = errors.New("the deadline passed before the outcome was known; retry with the same command id")

// errAheadOfLog: a cursor's position is beyond the end of its shard's log, so it
// was made of a log that has since been cut. Only a new beginning helps.
var errAheadOfLog = errors.New("the cursor is ahead of the log: the history it was made of is gone; subscribe from the beginning")

// What an ErrorInfo says of a retry whose outcome nobody can tell.
const (
	reasonForgotten = "COMMAND_OUTCOME_UNKNOWN"
	errorDomain     = "hostd"
)

// InvalidModuleError says why an upload or an activation was refused.
type InvalidModuleError struct{ Reason string }

func (e *InvalidModuleError) Error() string { return e.Reason }

// argumentError is a fault of the caller's input, worded for the caller.
type argumentError struct{ message string }

func (e *argumentError) Error() string { return e.message }

// codeOf gives an error its code. The message of an error with a code is
// public; one without is a fault of ours, whose text stays in the log.
//
// An outcome that is unknown is deadline_exceeded, never unavailable: a caller
// may take unavailable for "nothing happened" and send the command again under
// another id.
func codeOf(err error) (code connect.Code, known bool) {
	for _, s := range sentinelCodes {
		if errors.Is(err, s.err) {
			return s.code, true
		}
	}
	var (
		notLeader *sharding.NotLeaderError
		rejected  *entity.RejectedError
		mismatch  *entity.SequenceMismatchError
		fault     *entity.GuestFaultError
		gap       *entity.GapError
		module    *InvalidModuleError
		argument  *argumentError
		refused   *RefusedError
		setting   *InvalidSettingError
		going     *unfinishedError
		future    *FutureSequenceError
		cut       *journal.CutError
		stateless *StateCutError
	)
	switch {
	case errors.As(err, &argument), errors.As(err, &module), errors.As(err, &future), errors.As(err, &setting):
		return connect.CodeInvalidArgument, true
	case errors.As(err, &rejected), errors.As(err, &mismatch), errors.As(err, &refused):
		return connect.CodeFailedPrecondition, true
	case errors.As(err, &cut), errors.As(err, &stateless):
		return connect.CodeOutOfRange, true
	case errors.As(err, &notLeader), errors.As(err, &gap):
		return connect.CodeUnavailable, true
	case errors.As(err, &going):
		return connect.CodeDeadlineExceeded, true
	case errors.As(err, &fault):
		return connect.CodeInternal, true
	}
	return connect.CodeInternal, false
}

var sentinelCodes = []struct {
	err  error
	code connect.Code
}{
	{sharding.ErrInvalidName, connect.CodeInvalidArgument},
	{entity.ErrCommandIDReused, connect.CodeInvalidArgument},
	{entity.ErrUnknownType, connect.CodeNotFound},
	{entity.ErrUnknownCommand, connect.CodeNotFound},
	{entity.ErrUnknownQuery, connect.CodeNotFound},
	{ErrUnknownModule, connect.CodeNotFound},
	{ErrUnknownNode, connect.CodeNotFound},
	{ErrUnknownShard, connect.CodeNotFound},
	{ErrUnknownSetting, connect.CodeNotFound},
	{errReadOnly, connect.CodePermissionDenied},
	{entity.ErrBusy, connect.CodeResourceExhausted},
	{ErrNoLetter, connect.CodeNotFound},
	{entity.ErrOutboxFull, connect.CodeResourceExhausted},
	{entity.ErrLettersFull, connect.CodeResourceExhausted},
	{entity.ErrReadOnly, connect.CodeResourceExhausted},
	{ErrOverloaded, connect.CodeResourceExhausted},
	{errAheadOfLog, connect.CodeOutOfRange},
	{ErrNotReady, connect.CodeUnavailable},
	{ErrModuleNotLoaded, connect.CodeUnavailable},
	{ErrNoMajority, connect.CodeUnavailable},
	{entity.ErrOutcomeUnknown, connect.CodeDeadlineExceeded},
	{entity.ErrDeadline, connect.CodeDeadlineExceeded},
	{errNoOutcome, connect.CodeDeadlineExceeded},
	{entity.ErrNotApplied, connect.CodeUnavailable},
	{entity.ErrNotServed, connect.CodeUnavailable},
	{entity.ErrStopped, connect.CodeUnavailable},
	{router.ErrUnreachable, connect.CodeUnavailable},
	{errStopping, connect.CodeUnavailable},
	{errPaused, connect.CodeUnavailable},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
	{context.Canceled, connect.CodeCanceled},
	{entity.ErrForgotten, connect.CodeAborted},
	{entity.ErrCut, connect.CodeFailedPrecondition},
	{entity.ErrParked, connect.CodeInternal},
	{entity.ErrUnsupported, connect.CodeUnimplemented},
	{entity.ErrDamaged, connect.CodeDataLoss},
	{journal.ErrInstalling, connect.CodeUnavailable},
	{journal.ErrDamaged, connect.CodeDataLoss},
	{journal.ErrUnsupported, connect.CodeInternal},
	{journal.ErrTooLarge, connect.CodeInternal},
}

// publicError is what the caller is told of err: a *connect.Error as it is,
// everything else with the code of codeOf and the details that belong to it.
func publicError(log *slog.Logger, err error) *connect.Error {
	var already *connect.Error
	if errors.As(err, &already) {
		return already
	}
	code, known := codeOf(err)
	if !known {
		log.Error("request failed", "error", err)
		return connect.NewError(code, errors.New("internal error"))
	}
	out := connect.NewError(code, err)
	if detail := detailOf(err); detail != nil {
		if d, err := connect.NewErrorDetail(detail); err == nil {
			out.AddDetail(d)
		}
	}
	return out
}

// detailOf returns the message that belongs to an error as its detail, or nil.
func detailOf(err error) proto.Message {
	var rejected *entity.RejectedError
	if errors.As(err, &rejected) {
		return &entityv1.Rejection{Code: rejected.Code, Message: rejected.Message}
	}
	if errors.Is(err, entity.ErrForgotten) {
		return &errdetails.ErrorInfo{Reason: reasonForgotten, Domain: errorDomain}
	}
	var limited *entity.RateLimitedError
	if errors.As(err, &limited) {
		return &errdetails.RetryInfo{RetryDelay: durationpb.New(limited.RetryAfter)}
	}
	var mismatch *entity.SequenceMismatchError
	if errors.As(err, &mismatch) {
		return &entityv1.SequenceMismatch{Actual: uint64(mismatch.Actual)}
	}
	var cut *journal.CutError
	if errors.As(err, &cut) {
		return &entityv1.EventsCut{First: uint64(cut.First)}
	}
	return nil
}
