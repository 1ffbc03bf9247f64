package request

import (
	"context"
	"errors"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Code is the API code of an error, with the numbers that gRPC uses.
type Code uint32

const (
	Canceled           Code = 1
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
)

// Retry says what a router does with the request after an error.
type Retry uint8

const (
	// ReportError: the router returns the error to the caller and does not send
	// the request again. What an earlier attempt did stays unknown.
	ReportError Retry = iota
	// ReportErrorOfAny is like ReportError, but a node that does not lead the
	// shard may return the error too.
	ReportErrorOfAny
	// Resend: the request did not run, so the router sends it again.
	Resend
	// ResendSameID: the request may have run, so the router sends it again under
	// its command id, which makes the repetition harmless.
	ResendSameID
	// ResendElsewhere: the request did not run, and the node that returned the
	// error will run nothing any more. That node need not lead the shard.
	ResendElsewhere
	// Final: the error holds for all attempts at the command.
	Final
	// FinalAlone: the error holds for all attempts, provided that no earlier
	// attempt can still take effect. A rejection writes nothing, so an attempt
	// that runs later may find a different state and succeed.
	FinalAlone
)

// Outcome describes how an error that ends a request is reported and retried.
type Outcome struct {
	// Err is a sentinel error. It is nil for an error type that carries data;
	// has then recognizes it.
	Err error
	has func(error) bool
	// Wire is the error's number in messages between nodes. It never changes and
	// is never reused.
	Wire  uint64
	Code  Code
	Retry Retry
}

// Wire numbers of the errors that carry data.
const (
	WireNotLeader   = 2
	WireRejected    = 3
	WireMismatch    = 4
	WireGuestFault  = 5
	WireModule      = 6
	WireRateLimited = 7
	WireGap         = 8
	WireDenied      = 65
	WirePayload     = 9
)

// Outcomes are the errors that end requests, on this and on other nodes. If
// an error wraps several of them, its outcome is the first of these in this
// table.
var Outcomes = []Outcome{
	{has: is[*RateLimitedError], Wire: WireRateLimited, Code: ResourceExhausted, Retry: ReportErrorOfAny},
	{has: is[*RejectedError], Wire: WireRejected, Code: FailedPrecondition, Retry: FinalAlone},
	{has: is[*SequenceMismatchError], Wire: WireMismatch, Code: FailedPrecondition, Retry: Final},
	{has: is[*DeniedError], Wire: WireDenied, Code: PermissionDenied, Retry: ReportErrorOfAny},
	{has: is[*GapError], Wire: WireGap, Code: Unavailable},
	{has: is[*GuestFaultError], Wire: WireGuestFault, Code: Internal, Retry: FinalAlone},
	{has: is[*InvalidPayloadError], Wire: WirePayload, Code: InvalidArgument, Retry: FinalAlone},
	{has: is[*InvalidModuleError], Wire: WireModule, Code: InvalidArgument},
	{Err: ErrOutcomeUnknown, Wire: 16, Code: DeadlineExceeded, Retry: ResendSameID},
	{Err: ErrNotApplied, Wire: 17, Code: Unavailable, Retry: Resend},
	{Err: ErrStopped, Wire: 18, Code: Unavailable, Retry: ResendElsewhere},
	{Err: ErrBusy, Wire: 19, Code: ResourceExhausted, Retry: ReportErrorOfAny},
	{Err: ErrDeadline, Wire: 20, Code: DeadlineExceeded, Retry: ReportErrorOfAny},
	{Err: ErrReadOnly, Wire: 21, Code: ResourceExhausted, Retry: FinalAlone},
	{Err: ErrUnknownType, Wire: 22, Code: NotFound},
	{Err: ErrUnknownCommand, Wire: 23, Code: NotFound, Retry: FinalAlone},
	{Err: ErrUnknownQuery, Wire: 24, Code: NotFound},
	{Err: ErrCommandIDReused, Wire: 25, Code: InvalidArgument, Retry: Final},
	{Err: ErrQuarantined, Wire: 26, Code: Internal},
	{Err: ErrUnsupported, Wire: 27, Code: Unimplemented, Retry: FinalAlone},
	{Err: ErrDamaged, Wire: 28, Code: DataLoss},
	{Err: sharding.ErrInvalidName, Wire: 29, Code: InvalidArgument},
	{Err: journal.ErrStopped, Wire: 46, Code: Unavailable}, // before journal.ErrDamaged, which it may wrap
	{Err: journal.ErrDamaged, Wire: 30, Code: DataLoss},
	{Err: journal.ErrUnsupported, Wire: 31, Code: Internal},
	{Err: journal.ErrTooLarge, Wire: 32, Code: Internal},
	{Err: ErrNotReady, Wire: 33, Code: Unavailable},
	{Err: ErrModuleNotLoaded, Wire: 34, Code: Unavailable},
	{Err: ErrUnknownModule, Wire: 35, Code: NotFound},
	{Err: ErrOverloaded, Wire: 36, Code: ResourceExhausted},
	{Err: context.DeadlineExceeded, Wire: 37, Code: DeadlineExceeded},
	{Err: context.Canceled, Wire: 38, Code: Canceled},
	{Err: ErrUnreachable, Wire: 39, Code: Unavailable, Retry: Resend},
	{Err: journal.ErrInstalling, Wire: 40, Code: Unavailable},
	{Err: ErrNotServed, Wire: 41, Code: Unavailable, Retry: Resend},
	{Err: ErrOutboxFull, Wire: 42, Code: ResourceExhausted},
	{Err: ErrDeadLettersFull, Wire: 43, Code: ResourceExhausted},
	{Err: ErrCompacted, Wire: 44, Code: FailedPrecondition},
	{Err: ErrForgotten, Wire: 45, Code: Aborted, Retry: Final},
	{Err: ErrSuspended, Wire: 47, Code: FailedPrecondition},
	{Err: ErrInternalCommand, Wire: 48, Code: PermissionDenied}, // returned whatever an earlier attempt did
	{Err: ErrNotAccepted, Wire: 70, Code: FailedPrecondition, Retry: FinalAlone},
	{Err: ErrOutputLimit, Wire: 72, Code: OutOfRange, Retry: FinalAlone},
	{Err: ErrOutputValue, Wire: 73, Code: InvalidArgument, Retry: FinalAlone},
	{Err: ErrRolesUnknown, Wire: 66, Code: Unavailable, Retry: ReportErrorOfAny},
	{Err: ErrRolesStale, Wire: 71, Code: Unavailable, Retry: ReportErrorOfAny},
	{has: is[*sharding.NotLeaderError], Wire: WireNotLeader, Code: Unavailable, Retry: Resend},
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// OutcomeOf finds the outcome of an error. It returns nil for nil and for an
// error that is not in the table, which is internal to this node.
func OutcomeOf(err error) *Outcome {
	if err == nil {
		return nil
	}
	for i := range Outcomes {
		if o := &Outcomes[i]; o.Err != nil && errors.Is(err, o.Err) || o.has != nil && o.has(err) {
			return o
		}
	}
	return nil
}

// RetryOf returns the reaction of a router to an error. It returns ReportError
// for an error that is not in the table.
func RetryOf(err error) Retry {
	if o := OutcomeOf(err); o != nil {
		return o.Retry
	}
	return ReportError
}

// Sentinel returns the sentinel error with a wire number, or nil if there is
// none.
func Sentinel(wire uint64) error {
	for i := range Outcomes {
		if Outcomes[i].Wire == wire {
			return Outcomes[i].Err
		}
	}
	return nil
}
